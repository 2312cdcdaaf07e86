"""The dialect of Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, takewhile
from typing import Any

from afterwit.dialects.dialect import Dialect, TokenCount
from afterwit.dialects.fields import (
    as_arguments,
    as_list,
    as_object,
    as_text,
    flag,
    omitted,
    parse_schema,
    shown,
    storable,
    text,
    unknown_form,
    wrong_value,
)
from afterwit.dialects.messages_output import encoder, error_body
from afterwit.dialects.request import JsonForm, ModelRequest, RequestLimits, ToolChoice
from afterwit.dialects.sampling import (
    limit_fields,
    parse_max_tokens,
    parse_stops,
    parse_temperature,
    parse_top_k,
    parse_top_p,
)
from afterwit.ids import STORED_PREFIX, with_prefix
from afterwit.message import Conversation, Message, ToolCall
from afterwit.turn import Sampling

_PATH = "/v1/messages"


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


ANTHROPIC_MESSAGES = Dialect(
    name="anthropic_messages",
    path=_PATH,
    parse=parse_request,
    encoder=encoder,
    error_body=error_body,
    extra_routes=(
        TokenCount(
            path=_PATH + "/count_tokens", parse=parse_request, body=lambda tokens: {"input_tokens": tokens}
        ),
    ),
    request_id_header="request-id",
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


_BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*\n?", re.MULTILINE)
"""A line that Claude Code writes into the system text for its servers. It changes with every request."""

_FAILED = "Error: "
"""Before the text of a tool's failure: templates have no field that says so."""


def parse_system(value: Any, most: int) -> tuple[Message, ...]:
    """The system text as a message; none if it says nothing. At most `most` blocks."""
    if count_blocks([value]) > most:
        raise wrong_value("system", f"holds more than {most} blocks")
    texts = (_BILLING.sub("", text_of(block) or "") for block in parse_blocks(value, "system"))
    text = "\n".join(text for text in texts if text)
    return (Message(role="system", content=text),) if text else ()


def parse_conversation(system: Any, messages: Any, limits: RequestLimits) -> tuple[Message, ...]:
    """The system text and the messages. System text is one message at the beginning, as templates want it.

    Claude Code sends system text later on as well: that becomes a reminder, in the form of its own ones.
    """
    said = [*parse_system(system, limits.max_parts), *parse_messages(messages, limits)]
    begun = list(takewhile(_is_system, said))
    if len(begun) == len(said):
        raise wrong_value("messages", "must hold at least one message of the user")
    text = "\n".join(message.content for message in begun if message.content)
    rest = (_reminder(message) if _is_system(message) else message for message in said[len(begun) :])
    return (*((Message(role="system", content=text),) if text else ()), *rest)


def parse_begun(system: Any, messages: Any, limits: RequestLimits) -> tuple[tuple[Message, ...], str]:
    """The messages before the response, and how the response begins: with a last message of the assistant."""
    *before, last = parse_conversation(system, messages, limits)
    if last.role != "assistant" or last.tool_calls:
        return (*before, last), ""
    if all(map(_is_system, before)):
        raise wrong_value("messages", "must hold at least one message of the user")
    return tuple(before), (last.content or "").strip()


def _is_system(message: Message) -> bool:
    return message.role == "system"


def _reminder(message: Message) -> Message:
    return Message(role="user", content=f"<system-reminder>\n{message.content}\n</system-reminder>")


def parse_messages(value: Any, limits: RequestLimits) -> list[Message]:
    """The `messages` of a request. Each tool result becomes a message of its own. Raises RequestError 400."""
    written = as_list(value, "messages", most=limits.max_messages)
    if not written:
        raise wrong_value("messages", "must hold at least one message")
    blocks = count_blocks(message.get("content") for message in written if isinstance(message, dict))
    if blocks > limits.max_parts:
        raise wrong_value("messages", f"hold {blocks} blocks, more than {limits.max_parts}")
    said = [part for index, message in enumerate(written) for part in _said(message, f"messages[{index}]")]
    calls = sum(len(message.tool_calls) + (message.role == "tool") for message in said)
    if calls > limits.max_calls:
        raise wrong_value("messages", f"hold {calls} tool calls and results, more than {limits.max_calls}")
    return said


def _said(value: Any, where: str) -> list[Message]:
    data = as_object(value, where)
    role = as_text(data.get("role"), f"{where}.role")
    if role not in _ROLES:
        raise wrong_value(f"{where}.role", f"must be one of {', '.join(_ROLES)}, not {shown(role)}")
    return _ROLES[role](parse_blocks(data.get("content"), f"{where}.content"))


def _system(blocks: Sequence[Block]) -> list[Message]:
    return [Message(role="system", content=_BILLING.sub("", joined(list(blocks))))]


def _user(blocks: Sequence[Block]) -> list[Message]:
    """Tool results are messages; the blocks between them are one message."""
    messages: list[Message] = []
    for is_result, group in groupby(blocks, lambda block: block.kind == "tool_result"):
        if is_result:
            messages += [_result(block) for block in group]
        else:
            messages.append(_words(texts_of(list(group))))
    return messages or [Message(role="user", content="")]


def _words(texts: list[str]) -> Message:
    """One message of several texts, each on lines of its own."""
    ends = accumulate(len(text) + 1 for text in texts[:-1])
    return Message(role="user", content="\n".join(texts), breaks=tuple(ends))


def _result(block: Block) -> Message:
    text = joined(parse_blocks(block.data.get("content"), f"{block.where}.content"))
    if block.data.get("is_error") is True and not text.lower().startswith("error"):
        text = _FAILED + text
    return Message(
        role="tool", content=text, tool_call_id=with_prefix(STORED_PREFIX, block.text("tool_use_id"))
    )


def _assistant(blocks: Sequence[Block]) -> list[Message]:
    """One message. Its texts are one text that calls may interrupt."""
    calls = tuple(_call(block) for block in blocks if block.kind == "tool_use")
    thoughts = [block.text("thinking") for block in blocks if block.kind == "thinking"]
    texts = [text_of(block) or "" for block in blocks if block.kind != "tool_use"]
    content = "".join(texts)
    return [
        Message(
            role="assistant",
            content=content if content or not calls else None,
            reasoning="".join(thoughts) or None,
            tool_calls=calls,
        )
    ]


def _call(block: Block) -> ToolCall:
    arguments = as_arguments(block.data.get("input"), f"{block.where}.input")
    identifier = with_prefix(STORED_PREFIX, block.text("id"))
    return ToolCall(id=identifier, name=block.text("name"), arguments=arguments)


_ROLES: Mapping[str, Callable[[Sequence[Block]], list[Message]]] = {
    "user": _user,
    "assistant": _assistant,
    "system": _system,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block and its place in the request."""

    kind: str
    data: Mapping[str, Any]
    where: str

    def text(self, name: str) -> str:
        """A field that must be a string."""
        return as_text(self.data.get(name), f"{self.where}.{name}")


def parse_blocks(value: Any, where: str) -> list[Block]:
    """The blocks of a content; a string is one block of text, null is none."""
    if value is None:
        return []
    if isinstance(value, str):
        return [_block(value, where)]
    return [_block(part, f"{where}[{index}]") for index, part in enumerate(as_list(value, where))]


def count_blocks(contents: Iterable[Any]) -> int:
    """Blocks of contents and of the tool results among them. Counting is much faster than reading."""
    lists = [content for content in contents if isinstance(content, list)]
    inner = [block.get("content") for content in lists for block in content if isinstance(block, dict)]
    return sum(map(len, lists)) + sum(len(content) for content in inner if isinstance(content, list))


def _block(value: Any, where: str) -> Block:
    data = {"type": "text", "text": value} if isinstance(value, str) else as_object(value, where)
    return Block(kind=as_text(data.get("type"), f"{where}.type"), data=data, where=where)


def text_of(block: Block) -> str | None:
    """What a block says, None for blocks that say nothing to this model; or that it was left out."""
    if block.kind in _TEXTS:
        return _TEXTS[block.kind](block)
    if block.kind in _SILENT or block.kind.endswith(_SERVER_RESULT):
        return None
    return omitted(block.kind)


def joined(blocks: list[Block]) -> str:
    """The texts of blocks, each on lines of its own."""
    return "\n".join(texts_of(blocks))


def texts_of(blocks: list[Block]) -> list[str]:
    """What each block says that says anything."""
    return [text for text in map(text_of, blocks) if text is not None]


def _document(block: Block) -> str:
    """A document's text. Its file, if it is one, is left out."""
    where = f"{block.where}.source"
    source = as_object(block.data.get("source"), where)
    match source.get("type"):
        case "text":
            return as_text(source.get("data"), f"{where}.data")
        case "content":
            return _plain(source.get("content"), f"{where}.content")
        case _:
            return omitted(block.kind)


def _found(block: Block) -> str:
    """A search result: where it was found, and its text."""
    heads = (block.data.get(name) for name in ("title", "source"))
    texts = [head for head in heads if isinstance(head, str)]
    return "\n".join([*texts, _plain(block.data.get("content"), f"{block.where}.content")])


def _plain(value: Any, where: str) -> str:
    """The text of a content inside a block. What else it holds is left out, however deep it nests."""
    blocks = parse_blocks(value, where)
    return "\n".join(block.text("text") if block.kind == "text" else omitted(block.kind) for block in blocks)


_TEXTS: dict[str, Callable[[Block], str]] = {
    "text": lambda block: block.text("text"),
    "document": _document,
    "search_result": _found,
}

_SILENT = frozenset(
    {"thinking", "redacted_thinking", "server_tool_use", "tool_reference", "container_upload"}
)
"""Thought is read where the assistant speaks. The others are what Anthropic's own servers add."""

_SERVER_RESULT = "_tool_result"
"""The end of the type of a result of Anthropic's own tools, such as `web_search_tool_result`."""

_CHOICES = {
    "auto": ToolChoice.AUTO,
    "none": ToolChoice.NONE,
    "any": ToolChoice.REQUIRED,
    "tool": ToolChoice.REQUIRED,
}


def parse_tools(value: Any, most: int) -> tuple[Mapping[str, Any], ...]:
    """The client's own tools, at most `most`. Those that Anthropic's servers define or run are left out."""
    tools = [] if value is None else as_list(value, "tools", most=most)
    parsed = (_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))
    return tuple(tool for tool in parsed if tool is not None)


def _tool(value: Any, where: str) -> Mapping[str, Any] | None:
    tool = as_object(value, where)
    if tool.get("type") not in (None, "custom"):
        return None
    name = as_text(tool.get("name"), f"{where}.name")
    if not name:
        raise wrong_value(f"{where}.name", "must not be empty")
    function: dict[str, Any] = {"name": name}
    if tool.get("description") is not None:
        function["description"] = as_text(tool["description"], f"{where}.description")
    if tool.get("input_schema") is not None:
        function["parameters"] = as_object(tool["input_schema"], f"{where}.input_schema")
    storable(function, where)
    return {"type": "function", "function": function}


def parse_tool_choice(value: Any, tools: Sequence[Mapping[str, Any]]) -> tuple[ToolChoice, str | None, bool]:
    """Whether a call is asked for, the tool if one is named, and whether there may be several calls."""
    if value is None:
        return ToolChoice.AUTO, None, True
    data = as_object(value, "tool_choice")
    kind = as_text(data.get("type"), "tool_choice.type")
    if kind not in _CHOICES:
        raise wrong_value("tool_choice.type", f"must be one of {', '.join(_CHOICES)}, not {shown(kind)}")
    choice = _CHOICES[kind]
    if choice is ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "asks for a call, but there are no tools")
    name = as_text(data.get("name"), "tool_choice.name") if kind == "tool" else None
    if name is not None and name not in {tool["function"]["name"] for tool in tools}:
        raise wrong_value("tool_choice.name", f"is {shown(name)}, which is not among the tools")
    return choice, name, not flag(data, "disable_parallel_tool_use")
