"""The body of `POST /v1/responses`, parsed once. Unknown fields are ignored, never refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.core.message import Conversation, Message
from afterwit.wire.dialect import EarlierTurns
from afterwit.wire.fields import as_object, flag, storable, text, wrong_value
from afterwit.wire.openai import parse_form, parse_sampling, parse_template_args, parse_top_logprobs
from afterwit.wire.openai_responses.items import parse_input
from afterwit.wire.openai_responses.references import previous_turn, said_before
from afterwit.wire.openai_responses.response import DEFAULTS
from afterwit.wire.openai_responses.tools import parse_tool_choice, parse_tools
from afterwit.wire.request import JsonForm, ModelRequest, RequestLimits

LENGTHS = ("max_output_tokens",)
LOGPROBS = "message.output_text.logprobs"
"""The entry of `include` that asks for log-probs."""
NOT_SERVED = {
    "background": "Responses in the background are not served: leave out background.",
    "conversation": "Conversations are not kept by name: send previous_response_id, or the whole input.",
    "prompt": "Stored prompts are not served: send instructions and input.",
}
"""Fields that a client would rely on, with what to do instead."""
NO_EARLIER_TURNS = EarlierTurns()


def parse_request(body: Any, limits: RequestLimits, earlier: EarlierTurns = NO_EARLIER_TURNS) -> ModelRequest:
    """Read a request's JSON, given what it refers to.

    Raises RequestError 400 for what is malformed, and 404 for a response or an item that is not in `earlier`.
    """
    data = as_object(body, "the body")
    _refuse_unsupported(data)
    previous = previous_turn(data, earlier)
    instructions = text(data, "instructions")
    asked, required_tool, tools = parse_tool_choice(
        data.get("tool_choice"), parse_tools(data.get("tools"), limits.max_tools)
    )
    return ModelRequest(
        model=text(data, "model"),
        conversation=Conversation(
            messages=_messages(data, instructions, earlier, limits),
            tools=tools,
            template_args=parse_template_args(data.get("chat_template_kwargs")),
            instructed=bool(instructions),
        ),
        sampling=parse_sampling(data, limits, lengths=LENGTHS),
        stream=flag(data, "stream"),
        tool_choice=asked,
        required_tool=required_tool,
        parallel_calls=flag(data, "parallel_tool_calls", True),
        form=_form(data.get("text")),
        logprobs=LOGPROBS in _included(data.get("include")),
        top_logprobs=parse_top_logprobs(data),
        follows=None if previous is None else previous.id,
        echoed=_echoed(data),
    )


def _messages(
    data: Mapping[str, Any], instructions: str | None, earlier: EarlierTurns, limits: RequestLimits
) -> tuple[Message, ...]:
    """The instructions, what was said before, and the input."""
    messages = (
        *((Message(role="system", content=instructions),) if instructions else ()),
        *(() if earlier.previous is None else said_before(earlier.previous)),
        *parse_input(data.get("input"), earlier.quoted, limits),
    )
    if not messages:
        raise wrong_value("input", "must hold at least one message")
    calls = sum(len(message.tool_calls) for message in messages)
    if len(messages) > limits.max_messages:
        raise wrong_value("input", f"makes {len(messages)} messages, more than {limits.max_messages}")
    if calls > limits.max_calls:
        raise wrong_value("input", f"holds {calls} tool calls, more than {limits.max_calls}")
    return messages


def _form(value: Any) -> JsonForm | None:
    return parse_form(as_object(value or {}, "text").get("format"), "text.format", nested=False)


def _included(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _echoed(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the response repeats of its request."""
    sent = {name: data[name] for name in DEFAULTS if data.get(name) is not None}
    for name, value in sent.items():
        storable({name: value}, name)
    return {**DEFAULTS, **sent}


def _refuse_unsupported(data: Mapping[str, Any]) -> None:
    """Raise 400 for what the client would rely on and would not get."""
    for name, message in NOT_SERVED.items():
        if data.get(name):
            raise RequestError(400, "unsupported_parameter", message, param=name)
