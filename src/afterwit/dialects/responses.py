"""OpenAI's Responses API: its requests, and the references in them to earlier responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from afterwit.dialects.dialect import (
    Dialect,
    EarlierTurns,
    References,
    ReferringParser,
    StoredResponses,
    TokenCount,
)
from afterwit.dialects.fields import (
    Tool,
    as_arguments,
    as_list,
    as_object,
    as_text,
    flag,
    parse_tools,
    shown,
    storable,
    text,
    wrong_type,
    wrong_value,
)
from afterwit.dialects.json_form import parse_form
from afterwit.dialects.openai import custom_arguments, parse_tool_choice, parse_top_logprobs, text_of
from afterwit.dialects.request import ModelRequest, RequestLimits
from afterwit.dialects.responses_output import (
    DEFAULTS,
    ItemKind,
    encoder,
    error_body,
    read_item_id,
    stored_body,
)
from afterwit.dialects.sampling import parse_sampling, parse_template_args
from afterwit.errors import RequestError
from afterwit.ids import STORED_PREFIX, choice_turn, turn_of_response, with_prefix
from afterwit.message import Conversation, Message, ToolCall

NO_EARLIER_TURNS = EarlierTurns()
LOGPROBS = "message.output_text.logprobs"
"""The entry of `include` that requests log-probs."""

NOT_SERVED = {
    "background": "Responses in the background are not served: leave out background.",
    "conversation": "Conversations are not kept by name: send previous_response_id, or the whole input.",
    "prompt": "Stored prompts are not served: send instructions and input.",
}
"""Fields that a client would rely on, with the message of their refusal."""

PRINTED = ("name", "description", "parameters")
"""Fields of a function that the model reads, in the order in which chat templates are taught."""

Quoted = Mapping[str, Message]
"""Earlier responses that items may refer to, by turn."""

ITEMS_OF_ONE = 3
"""Items of one message: a thought, a text and a call."""

ROLES = ("user", "assistant", "system", "developer")

MOST_REFERENCES = 256
"""Turns that one request may refer to: each is read from the store."""

PATH = "/v1/responses"


def parse_request(body: Any, limits: RequestLimits, earlier: EarlierTurns = NO_EARLIER_TURNS) -> ModelRequest:
    """Read a request's JSON and the earlier turns that it refers to.

    Raises RequestError 400 for a malformed field, and 404 for a response or an item that is not in `earlier`.
    """
    data = as_object(body, "the body")
    for name, message in NOT_SERVED.items():
        if data.get(name):
            raise RequestError(400, "unsupported_parameter", message, param=name)
    if text(data, "previous_response_id") is not None and earlier.previous is None:
        message = "previous_response_id: there is no such response."
        raise RequestError(404, "previous_response_not_found", message, param="previous_response_id")
    instructions = text(data, "instructions")
    tool_choice, required_tool, tools = parse_tool_choice(
        data.get("tool_choice"), parse_tools(data.get("tools"), limits.max_tools, _function), nested=False
    )
    included = data.get("include")
    return ModelRequest(
        model=text(data, "model"),
        conversation=Conversation(
            messages=_messages(data, instructions, earlier, limits),
            tools=tools,
            template_args=parse_template_args(data.get("chat_template_kwargs")),
            instructed=bool(instructions),
        ),
        sampling=parse_sampling(data, limits, lengths=("max_output_tokens",)),
        stream=flag(data, "stream"),
        tool_choice=tool_choice,
        required_tool=required_tool,
        parallel_calls=flag(data, "parallel_tool_calls", True),
        form=parse_form(as_object(data.get("text") or {}, "text").get("format"), "text.format", nested=False),
        logprobs=isinstance(included, list) and LOGPROBS in included,
        top_logprobs=parse_top_logprobs(data),
        follows=None if earlier.previous is None else earlier.previous.id,
        echoed=_echoed(data),
    )


def _messages(
    data: Mapping[str, Any], instructions: str | None, earlier: EarlierTurns, limits: RequestLimits
) -> tuple[Message, ...]:
    """The instructions, the earlier conversation without its own instructions, and the input."""
    messages = [Message(role="system", content=instructions)] if instructions else []
    if earlier.previous is not None:
        before = earlier.previous.conversation
        messages += [*before.messages[1 if before.instructed else 0 :], earlier.previous.message]
    messages += parse_input(data.get("input"), earlier.quoted, limits)
    if not messages:
        raise wrong_value("input", "must hold at least one message")
    calls = sum(len(message.tool_calls) for message in messages)
    if len(messages) > limits.max_messages:
        raise wrong_value("input", f"makes {len(messages)} messages, more than {limits.max_messages}")
    if calls > limits.max_calls:
        raise wrong_value("input", f"holds {calls} tool calls, more than {limits.max_calls}")
    return tuple(messages)


def _echoed(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields that the response repeats."""
    sent = {name: data[name] for name in DEFAULTS if data.get(name) is not None}
    for name, value in sent.items():
        storable({name: value}, name)
    return {**DEFAULTS, **sent}


def _function(tool: Tool, where: str) -> Tool | None:
    """A function in chat's form."""
    storable(tool, where)
    if as_text(tool.get("type"), f"{where}.type") != "function":
        return None
    if not as_text(tool.get("name"), f"{where}.name"):
        raise wrong_value(f"{where}.name", "must not be empty")
    if tool.get("parameters") is not None:
        as_object(tool["parameters"], f"{where}.parameters")
    function = {name: tool[name] for name in PRINTED if tool.get(name) is not None}
    return {"type": "function", "function": function}


def parse_input(value: Any, quoted: Quoted, limits: RequestLimits) -> tuple[Message, ...]:
    """The messages of an `input`: a text of the user, or items. Raises RequestError 400 and 404."""
    if isinstance(value, str):
        return (Message(role="user", content=value),)
    if not isinstance(value, list):
        raise wrong_type("input", "a string or an array of items", value)
    items = as_list(value, "input", most=ITEMS_OF_ONE * limits.max_messages)
    return tuple(_joined(_parts(items, quoted)))


def _parts(items: Iterable[Any], quoted: Quoted) -> Iterator[Message]:
    """Each item as a message of its own. Items of unknown types, and thoughts without text, are left out."""
    for index, value in enumerate(items):
        where = f"input[{index}]"
        item = as_object(value, where)
        identifier = _referred_id(item)
        if identifier is not None:
            part = _referred_part(identifier, quoted, where)
        else:
            kind = item.get("type")
            read = _READERS.get("message" if kind is None else as_text(kind, f"{where}.type"))
            part = None if read is None else read(item, where)
        if part is not None:
            yield part


def _message(item: Mapping[str, Any], where: str) -> Message:
    role = as_text(item.get("role"), f"{where}.role")
    if role not in ROLES:
        raise wrong_value(f"{where}.role", f"must be one of {', '.join(ROLES)}, not {shown(role)}")
    return Message(role=role, content=text_of(item.get("content"), f"{where}.content") or "")


def _reasoning(item: Mapping[str, Any], where: str) -> Message | None:
    """The thought, if the client returns its plain text."""
    for name in ("content", "summary"):
        if item.get(name):
            parts = as_list(item[name], f"{where}.{name}")
            read = (as_object(part, f"{where}.{name}").get("text") for part in parts)
            thought = "\n\n".join(as_text(text, f"{where}.{name}.text") for text in read)
            return Message(role="assistant", reasoning=thought)
    return None


def _call(item: Mapping[str, Any], where: str) -> Message:
    if item["type"] == "custom_tool_call":
        arguments = custom_arguments(item.get("input"), f"{where}.input")
    else:
        arguments = as_arguments(item.get("arguments"), f"{where}.arguments")
    name = as_text(item.get("name"), f"{where}.name")
    call = ToolCall(id=_call_id(item, where), name=name, arguments=arguments)
    return Message(role="assistant", tool_calls=(call,))


def _output(item: Mapping[str, Any], where: str) -> Message:
    content = text_of(item.get("output"), f"{where}.output") or ""
    return Message(role="tool", content=content, tool_call_id=_call_id(item, where))


def _call_id(item: Mapping[str, Any], where: str) -> str:
    return with_prefix(STORED_PREFIX, as_text(item.get("call_id"), f"{where}.call_id"))


def _nameless_reference(item: Mapping[str, Any], where: str) -> None:
    raise wrong_type(f"{where}.id", "a string", item.get("id"))


_READERS: Mapping[str, Callable[[Mapping[str, Any], str], Message | None]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _call,
    "function_call_output": _output,
    "custom_tool_call": _call,
    "custom_tool_call_output": _output,
    "item_reference": _nameless_reference,
}
"""By the type of an item. A reference with an id is read before."""


def _joined(parts: Iterable[Message]) -> Iterator[Message]:
    """The parts of each reply as one message: a response is sent as several items."""
    reply: list[Message] = []
    for part in parts:
        if reply and not _belongs(part, reply[-1]):
            yield _whole(reply)
            reply = []
        if part.role == "assistant":
            reply.append(part)
        else:
            yield part
    if reply:
        yield _whole(reply)


def _belongs(part: Message, last: Message) -> bool:
    """Whether a part is of the same reply as the `last`: it thinks, speaks, calls, and may speak again."""
    if part.role != "assistant":
        return False
    if part.reasoning is not None:
        return last.reasoning is not None
    return part.content is None or last.content is None


def _whole(reply: list[Message]) -> Message:
    texts = [part.content for part in reply if part.content is not None]
    thoughts = [part.reasoning for part in reply if part.reasoning is not None]
    return Message(
        role="assistant",
        content="".join(texts) if texts else None,
        reasoning="\n\n".join(thoughts) if thoughts else None,
        tool_calls=tuple(call for part in reply for call in part.tool_calls),
    )


def references_of(body: Mapping[str, Any]) -> References:
    """The turns that a body refers to. Raises RequestError 400 if there are too many."""
    items = body.get("input")
    referred = map(_referred_id, items) if isinstance(items, list) else ()
    found = (read_item_id(identifier) for identifier in referred if identifier is not None)
    quoted = dict.fromkeys(item.turn for item in found if item is not None)
    if len(quoted) > MOST_REFERENCES:
        raise wrong_value("input", f"refers to {len(quoted)} responses, more than {MOST_REFERENCES}")
    try:
        previous = choice_turn(turn_of_response(body["previous_response_id"]), 0)
    except (KeyError, TypeError, ValueError):
        previous = None
    return References(previous=previous, quoted=tuple(quoted))


def _referred_id(item: Any) -> str | None:
    """The id of the item that this item refers to; None if it has content of its own."""
    if not isinstance(item, Mapping):
        return None
    bare = item.get("type") is None and "role" not in item
    identifier = item.get("id") if bare or item.get("type") == "item_reference" else None
    return identifier if isinstance(identifier, str) else None


def _referred_part(identifier: str, quoted: Quoted, where: str) -> Message | None:
    """The part of an earlier response with this item id; None if it was empty. Raises RequestError 404."""
    item = read_item_id(identifier)
    response = None if item is None else quoted.get(item.turn)
    if item is None or response is None:
        message = f"{where} refers to an item that is not known here."
        raise RequestError(404, "item_not_found", message, param=where)
    if item.kind is ItemKind.CALL:
        calls = response.tool_calls[item.number : item.number + 1]
        return Message(role="assistant", tool_calls=calls) if calls else None
    if item.number:  # the first message item holds the whole text, even if a call divided it
        return None
    if item.kind is ItemKind.REASONING:
        return Message(role="assistant", reasoning=response.reasoning) if response.reasoning else None
    return Message(role="assistant", content=response.content or "")


PARSE = ReferringParser(references=references_of, parse=parse_request)

OPENAI_RESPONSES = Dialect(
    name="openai_responses",
    path=PATH,
    parse=PARSE,
    encoder=encoder,
    error_body=error_body,
    extra_routes=(
        TokenCount(
            path=f"{PATH}/input_tokens",
            parse=PARSE,
            body=lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
        ),
        StoredResponses(path=f"{PATH}/{{response}}", body=stored_body),
    ),
)
