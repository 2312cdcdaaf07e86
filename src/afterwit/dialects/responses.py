"""The dialect of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    as_arguments,
    as_list,
    as_object,
    as_text,
    flag,
    shown,
    storable,
    text,
    wrong_type,
    wrong_value,
)
from afterwit.dialects.openai import custom_arguments, parse_form, parse_top_logprobs, text_of
from afterwit.dialects.request import JsonForm, ModelRequest, RequestLimits, ToolChoice
from afterwit.dialects.responses_output import (
    DEFAULTS,
    ItemKind,
    count_body,
    encoder,
    error_body,
    read_item_id,
    stored_body,
)
from afterwit.dialects.sampling import parse_sampling, parse_template_args
from afterwit.errors import RequestError
from afterwit.ids import STORED_PREFIX, choice_turn, turn_of_response, with_prefix
from afterwit.message import Conversation, Message, ToolCall
from afterwit.turn import Turn

PATH = "/v1/responses"
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


def references_of(body: Mapping[str, Any]) -> References:
    """The turns that a body refers to. Raises RequestError 400 if there are too many."""
    items = body.get("input")
    referred = (referred_id(item) for item in items) if isinstance(items, list) else ()
    found = (read_item_id(identifier) for identifier in referred if identifier is not None)
    quoted = dict.fromkeys(item.turn for item in found if item is not None)
    if len(quoted) > MOST_REFERENCES:
        raise wrong_value("input", f"refers to {len(quoted)} responses, more than {MOST_REFERENCES}")
    return References(previous=_previous(body), quoted=tuple(quoted))


PARSE = ReferringParser(references=references_of, parse=parse_request)

OPENAI_RESPONSES = Dialect(
    name="openai_responses",
    path=PATH,
    parse=PARSE,
    encoder=encoder,
    error_body=error_body,
    extra_routes=(
        TokenCount(path=f"{PATH}/input_tokens", parse=PARSE, body=count_body),
        StoredResponses(path=f"{PATH}/{{response}}", body=stored_body),
    ),
)

LENGTHS = ("max_output_tokens",)

LOGPROBS = "message.output_text.logprobs"
"""The entry of `include` that asks for log-probs."""

NOT_SERVED = {
    "background": "Responses in the background are not served: leave out background.",
    "conversation": "Conversations are not kept by name: send previous_response_id, or the whole input.",
    "prompt": "Stored prompts are not served: send instructions and input.",
}
"""Fields that a client would rely on, with what to do instead."""


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


Quoted = Mapping[str, Message]
"""Earlier responses that items may refer to, by turn."""

ITEMS_OF_ONE = 3
"""Items that a message leaves as: a thought, a text and a call."""

ROLES = ("user", "assistant", "system", "developer")


def parse_input(value: Any, quoted: Quoted, limits: RequestLimits) -> tuple[Message, ...]:
    """The messages of an `input`: a text of the user, or items. Raises RequestError 400 and 404."""
    if isinstance(value, str):
        return (Message(role="user", content=value),)
    if not isinstance(value, list):
        raise wrong_type("input", "a string or an array of items", value)
    items = as_list(value, "input", most=ITEMS_OF_ONE * limits.max_messages)
    return tuple(_joined(_parts(items, quoted)))


def _parts(items: Iterable[Any], quoted: Quoted) -> Iterator[Message]:
    """Each item as a message of its own; an item of an unknown type, or without a text, is none."""
    for index, value in enumerate(items):
        where = f"input[{index}]"
        item = as_object(value, where)
        identifier = referred_id(item)
        part = referred_part(identifier, quoted, where) if identifier is not None else _part(item, where)
        if part is not None:
            yield part


def _part(item: Mapping[str, Any], where: str) -> Message | None:
    kind = item.get("type")
    read = _READERS.get("message" if kind is None else as_text(kind, f"{where}.type"))
    return None if read is None else read(item, where)


def _message(item: Mapping[str, Any], where: str) -> Message:
    role = as_text(item.get("role"), f"{where}.role")
    if role not in ROLES:
        raise wrong_value(f"{where}.role", f"must be one of {', '.join(ROLES)}, not {shown(role)}")
    return Message(role=role, content=text_of(item.get("content"), f"{where}.content") or "")


def _reasoning(item: Mapping[str, Any], where: str) -> Message | None:
    """The thought in plain text, if the client sends it back."""
    for name in ("content", "summary"):
        if item.get(name):
            parts = as_list(item[name], f"{where}.{name}")
            read = (as_object(part, f"{where}.{name}").get("text") for part in parts)
            thought = "\n\n".join(as_text(text, f"{where}.{name}.text") for text in read)
            return Message(role="assistant", reasoning=thought)
    return None


def _call(item: Mapping[str, Any], where: str) -> Message:
    call = ToolCall(
        id=_call_id(item, where),
        name=as_text(item.get("name"), f"{where}.name"),
        arguments=as_arguments(item.get("arguments"), f"{where}.arguments"),
    )
    return Message(role="assistant", tool_calls=(call,))


def _custom_call(item: Mapping[str, Any], where: str) -> Message:
    call = ToolCall(
        id=_call_id(item, where),
        name=as_text(item.get("name"), f"{where}.name"),
        arguments=custom_arguments(item.get("input"), f"{where}.input"),
    )
    return Message(role="assistant", tool_calls=(call,))


def _output(item: Mapping[str, Any], where: str) -> Message:
    content = text_of(item.get("output"), f"{where}.output") or ""
    return Message(role="tool", content=content, tool_call_id=_call_id(item, where))


def _call_id(item: Mapping[str, Any], where: str) -> str:
    return with_prefix(STORED_PREFIX, as_text(item.get("call_id"), f"{where}.call_id"))


def _nameless_reference(item: Mapping[str, Any], where: str) -> None:
    """Raises 400: an item with an id was read before."""
    raise wrong_type(f"{where}.id", "a string", item.get("id"))


_READERS: Mapping[str, Callable[[Mapping[str, Any], str], Message | None]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _call,
    "function_call_output": _output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _output,
    "item_reference": _nameless_reference,
}
"""By the type of an item."""


def _joined(parts: Iterable[Message]) -> Iterator[Message]:
    """The parts of each reply as one message: a response leaves as several items."""
    reply: list[Message] = []
    for part in parts:
        if reply and not _belongs(part, reply):
            yield _whole(reply)
            reply = []
        if part.role == "assistant":
            reply.append(part)
        else:
            yield part
    if reply:
        yield _whole(reply)


def _belongs(part: Message, reply: list[Message]) -> bool:
    """Whether a part is of the same reply as those before it.

    A reply thinks, speaks and calls, in this order; it may also speak after a call.
    """
    last = reply[-1]
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


MOST_REFERENCES = 256
"""Turns that one request may refer to: each is read from the store."""


def _previous(body: Mapping[str, Any]) -> str | None:
    try:
        return choice_turn(turn_of_response(body["previous_response_id"]), 0)
    except (KeyError, TypeError, ValueError):
        return None


def referred_id(item: Any) -> str | None:
    """The id that an item of the input consists of; None if the item says something itself."""
    if not isinstance(item, Mapping):
        return None
    bare = item.get("type") is None and "role" not in item
    identifier = item.get("id") if bare or item.get("type") == "item_reference" else None
    return identifier if isinstance(identifier, str) else None


def previous_turn(body: Mapping[str, Any], earlier: EarlierTurns) -> Turn | None:
    """The turn of the response that the request goes on from. Raises RequestError 404 if there is none."""
    if text(body, "previous_response_id") is not None and earlier.previous is None:
        message = "previous_response_id: there is no such response."
        raise RequestError(404, "previous_response_not_found", message, param="previous_response_id")
    return earlier.previous


def said_before(turn: Turn) -> tuple[Message, ...]:
    """A turn's conversation with its response, without the instructions of its request."""
    messages = turn.conversation.messages
    return (*(messages[1:] if turn.conversation.instructed else messages), turn.message)


def referred_part(identifier: str, quoted: Mapping[str, Message], where: str) -> Message | None:
    """The part of an earlier response that an item was; None if it was empty. Raises RequestError 404."""
    item = read_item_id(identifier)
    response = None if item is None else quoted.get(item.turn)
    if item is None or response is None:
        message = f"{where} refers to an item that is not known here."
        raise RequestError(404, "item_not_found", message, param=where)
    return _referenced_part(response, item.kind, item.index)


def _referenced_part(message: Message, kind: ItemKind, index: int) -> Message | None:
    """The first message item holds the whole text, even if a call divided it."""
    if kind is ItemKind.CALL:
        calls = message.tool_calls[index : index + 1]
        return Message(role="assistant", tool_calls=calls) if calls else None
    if index:
        return None
    if kind is ItemKind.REASONING:
        return Message(role="assistant", reasoning=message.reasoning) if message.reasoning else None
    return Message(role="assistant", content=message.content or "")


Tool = Mapping[str, Any]

PRINTED = ("name", "description", "parameters")
"""Fields of a function that the model reads, in the order in which chat templates are taught."""


def parse_tools(value: Any, most: int) -> tuple[Tool, ...]:
    """The functions among `tools`, of which there may be `most`, in the form that templates print."""
    tools = [] if value is None else as_list(value, "tools", most=most)
    read = (_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))
    return tuple(tool for tool in read if tool is not None)


def _tool(value: Any, where: str) -> Tool | None:
    tool = as_object(value, where)
    storable(tool, where)
    if as_text(tool.get("type"), f"{where}.type") != "function":
        return None
    if not as_text(tool.get("name"), f"{where}.name"):
        raise wrong_value(f"{where}.name", "must not be empty")
    if tool.get("parameters") is not None:
        as_object(tool["parameters"], f"{where}.parameters")
    function = {name: tool[name] for name in PRINTED if tool.get(name) is not None}
    return {"type": "function", "function": function}


def parse_tool_choice(value: Any, tools: tuple[Tool, ...]) -> tuple[ToolChoice, str | None, tuple[Tool, ...]]:
    """Whether a call is asked for, the name of the tool if one is named, and the tools that may be called."""
    if value is None:
        return ToolChoice.AUTO, None, tools
    if isinstance(value, str):
        return _word(value, tools), None, tools
    choice = as_object(value, "tool_choice")
    kind = as_text(choice.get("type"), "tool_choice.type")
    if kind == "function":
        name = _known(choice, tools, "tool_choice")
        return ToolChoice.REQUIRED, name, tools
    if kind == "allowed_tools":
        allowed = _allowed(choice, tools)
        return _word(choice.get("mode", ToolChoice.AUTO), allowed), None, allowed
    message = f"tool_choice asks for a tool of type {shown(kind)}: this server calls functions only."
    raise RequestError(400, "unsupported_tool_choice", message, param="tool_choice")


def _word(value: Any, tools: Sequence[Tool]) -> ToolChoice:
    word = as_text(value, "tool_choice")
    if word not in set(ToolChoice):
        raise wrong_value("tool_choice", "must be auto, none, required or an object that names a function")
    if word == ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "asks for a call, but there are no functions among the tools")
    return ToolChoice(word)


def _allowed(choice: Mapping[str, Any], tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools that the choice names; other types than functions are not offered anyway."""
    listed = as_list(choice.get("tools"), "tool_choice.tools")
    entries = [as_object(entry, f"tool_choice.tools[{index}]") for index, entry in enumerate(listed)]
    functions = (entry for entry in entries if entry.get("type") == "function")
    names = {_known(entry, tools, "tool_choice.tools") for entry in functions}
    return tuple(tool for tool in tools if tool["function"]["name"] in names)


def _known(choice: Mapping[str, Any], tools: Sequence[Tool], where: str) -> str:
    name = as_text(choice.get("name"), f"{where}.name")
    if name not in {tool["function"]["name"] for tool in tools}:
        raise wrong_value(where, f"names {shown(name)}, which is not among the tools")
    return name
