"""The body of `POST /v1/chat/completions`, parsed once. Unknown fields are ignored, never refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.core.message import Conversation
from afterwit.wire.fields import as_object, flag, integer, text, wrong_value
from afterwit.wire.openai import parse_form, parse_sampling, parse_template_args, parse_top_logprobs
from afterwit.wire.openai_chat.messages import parse_begun
from afterwit.wire.openai_chat.tools import parse_tool_choice, parse_tools
from afterwit.wire.request import Field, ModelRequest, RequestLimits

LENGTHS = ("max_completion_tokens", "max_tokens")
"""Fields that limit the tokens of the response, the newer name first."""


def parse_request(body: Any, limits: RequestLimits) -> ModelRequest:
    """Read a request's JSON. Whatever is malformed raises RequestError 400, naming the field."""
    data = as_object(body, "the body")
    messages, prefill = parse_begun(data, limits)
    tool_choice, required_tool, tools = parse_tool_choice(
        data.get("tool_choice"), parse_tools(data.get("tools"), limits.max_tools)
    )
    conversation = Conversation(
        messages=messages,
        tools=tools,
        template_args=parse_template_args(data.get("chat_template_kwargs")),
    )
    return ModelRequest(
        model=text(data, "model"),
        conversation=conversation,
        sampling=parse_sampling(data, limits, lengths=LENGTHS),
        choices=integer(data, "n", low=1, high=limits.max_choices) or 1,
        stream=flag(data, "stream"),
        include_usage=_include_usage(data.get("stream_options")),
        tool_choice=tool_choice,
        required_tool=required_tool,
        parallel_calls=flag(data, "parallel_tool_calls", True),
        form=parse_form(data.get("response_format"), Field.FORMAT, nested=True),
        prefill=prefill,
        logprobs=flag(data, "logprobs"),
        top_logprobs=_top_logprobs(data),
    )


def _include_usage(value: Any) -> bool:
    return value is not None and flag(as_object(value, "stream_options"), "include_usage")


def _top_logprobs(data: Mapping[str, Any]) -> int:
    count = parse_top_logprobs(data)
    if count and not flag(data, "logprobs"):
        raise wrong_value("top_logprobs", "needs logprobs to be true")
    return count
