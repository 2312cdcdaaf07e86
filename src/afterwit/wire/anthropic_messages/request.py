"""The body of `POST /v1/messages`, parsed once. Unknown fields are ignored, never refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.core.message import Conversation
from afterwit.core.turn import Sampling
from afterwit.wire.anthropic_messages.messages import parse_conversation
from afterwit.wire.anthropic_messages.tools import parse_tool_choice, parse_tools
from afterwit.wire.fields import as_object, as_text, flag, text
from afterwit.wire.request import ModelRequest, RequestLimits
from afterwit.wire.sampling_fields import (
    parse_max_tokens,
    parse_stops,
    parse_temperature,
    parse_top_k,
    parse_top_p,
)


def parse_request(body: Any, limits: RequestLimits) -> ModelRequest:
    """Read a request's JSON. Whatever is malformed raises RequestError 400, naming the field."""
    request = parse_count(body, limits)
    if request.conversation.messages[-1].role == "assistant":
        message = "This server does not continue a message of the assistant: end with a message of the user."
        raise RequestError(400, "unsupported_prefill", message, param="messages")
    return request


def parse_count(body: Any, limits: RequestLimits) -> ModelRequest:
    """Read a request whose tokens are to be counted: it may end with a message of the assistant."""
    data = as_object(body, "the body")
    _refuse_unsupported(data)
    thinking = _thinking(data.get("thinking"))
    conversation = Conversation(
        messages=parse_conversation(data.get("system"), data.get("messages"), limits),
        tools=parse_tools(data.get("tools"), limits.max_tools),
        template_args={} if thinking is None else {"enable_thinking": thinking},
    )
    tool_choice, required_tool, parallel_calls = parse_tool_choice(
        data.get("tool_choice"), conversation.tools
    )
    return ModelRequest(
        model=text(data, "model"),
        conversation=conversation,
        sampling=_sampling(data, limits),
        stream=flag(data, "stream"),
        tool_choice=tool_choice,
        required_tool=required_tool,
        parallel_calls=parallel_calls,
        show_reasoning=bool(thinking),
    )


def _sampling(data: Mapping[str, Any], limits: RequestLimits) -> Sampling:
    return Sampling(
        max_tokens=parse_max_tokens(data, "max_tokens") or limits.default_max_tokens,
        temperature=parse_temperature(data),
        top_p=parse_top_p(data),
        top_k=parse_top_k(data),
        stop=parse_stops(data.get("stop_sequences"), "stop_sequences", limits),
    )


def _thinking(value: Any) -> bool | None:
    """Whether the client asks for reasoning; None if it leaves that to the model's template."""
    if value is None:
        return None
    return as_text(as_object(value, "thinking").get("type"), "thinking.type") != "disabled"


def _refuse_unsupported(data: Mapping[str, Any]) -> None:
    """Raise 400 for what the client would rely on and would not get."""
    config = data.get("output_config")
    config = {} if config is None else as_object(config, "output_config")
    forms = {"output_config.format": config.get("format"), "output_format": data.get("output_format")}
    for param, value in forms.items():
        if value is not None:
            message = f"{param} is not served: this server cannot force a form of text"
            raise RequestError(400, "unsupported_response_format", message, param=param)
