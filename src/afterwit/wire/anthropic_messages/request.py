"""The body of `POST /v1/messages`, parsed once. Unknown fields are ignored, never refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.core.message import Conversation
from afterwit.core.turn import Sampling
from afterwit.wire.anthropic_messages.messages import parse_begun
from afterwit.wire.anthropic_messages.tools import parse_tool_choice, parse_tools
from afterwit.wire.fields import as_object, as_text, flag, text
from afterwit.wire.json_form import parse_schema, unknown_form
from afterwit.wire.request import JsonForm, ModelRequest, RequestLimits
from afterwit.wire.sampling_fields import (
    limit_fields,
    parse_max_tokens,
    parse_stops,
    parse_temperature,
    parse_top_k,
    parse_top_p,
)


def parse_request(body: Any, limits: RequestLimits) -> ModelRequest:
    """Read a request's JSON. Whatever is malformed raises RequestError 400, naming the field."""
    data = as_object(body, "the body")
    thinking = _thinking(data.get("thinking"))
    messages, prefill = parse_begun(data.get("system"), data.get("messages"), limits)
    conversation = Conversation(
        messages=messages,
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
        form=_form(data),
        prefill=prefill,
    )


def _sampling(data: Mapping[str, Any], limits: RequestLimits) -> Sampling:
    return Sampling(
        **limit_fields(parse_max_tokens(data, "max_tokens"), limits),
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


def _form(data: Mapping[str, Any]) -> JsonForm | None:
    """The form asked for, in today's field or in that of the beta."""
    config = data.get("output_config")
    config = {} if config is None else as_object(config, "output_config")
    forms = {"output_config.format": config.get("format"), "output_format": data.get("output_format")}
    for where, value in forms.items():
        if value is not None:
            form = as_object(value, where)
            if form.get("type") != "json_schema":
                raise unknown_form(form.get("type"), where)
            return parse_schema(form.get("schema"), f"{where}.schema", strict=True)
    return None
