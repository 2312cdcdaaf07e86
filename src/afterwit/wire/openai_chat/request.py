"""The body of `POST /v1/chat/completions`, parsed once. Unknown fields are ignored, never refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.core.message import Conversation
from afterwit.wire.fields import as_object, flag, integer, shown, text
from afterwit.wire.openai import parse_sampling, parse_template_args
from afterwit.wire.openai_chat.messages import parse_messages
from afterwit.wire.openai_chat.tools import parse_tool_choice, parse_tools
from afterwit.wire.request import ModelRequest, RequestLimits

LENGTHS = ("max_completion_tokens", "max_tokens")
"""Fields that limit the tokens of the response, the newer name first."""


def parse_request(body: Any, limits: RequestLimits) -> ModelRequest:
    """Read a request's JSON. Whatever is malformed raises RequestError 400, naming the field."""
    data = as_object(body, "the body")
    _refuse_unsupported(data)
    conversation = Conversation(
        messages=parse_messages(data.get("messages"), limits),
        tools=parse_tools(data.get("tools"), limits.max_tools),
        template_args=parse_template_args(data.get("chat_template_kwargs")),
    )
    tool_choice, required_tool = parse_tool_choice(data.get("tool_choice"), conversation.tools)
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
        logprobs=flag(data, "logprobs"),
    )


def _include_usage(value: Any) -> bool:
    return value is not None and flag(as_object(value, "stream_options"), "include_usage")


def _refuse_unsupported(data: Mapping[str, Any]) -> None:
    """Raise 400 for what the client would rely on and would not get."""
    value = data.get("response_format")
    kind = "text" if value is None else as_object(value, "response_format").get("type")
    if kind != "text":
        message = f"response_format {shown(str(kind))} is not served"
        raise RequestError(400, "unsupported_response_format", message, param="response_format")
    if integer(data, "top_logprobs", low=0, high=20):
        message = "Only the sampled token's log-prob is served: logprobs without top_logprobs."
        raise RequestError(400, "unsupported_parameter", message, param="top_logprobs")
