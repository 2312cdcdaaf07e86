"""Anthropic's Messages API: its requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, takewhile
from typing import Any

from afterwit.dialects.dialect import Dialect, TokenCount
from afterwit.dialects.fields import (
    Tool,
    as_arguments,
    as_list,
    as_object,
    as_text,
    flag,
    omitted,
    parse_tools,
    shown,
    storable,
    text,
    wrong_value,
)
from afterwit.dialects.json_form import parse_schema, unknown_form
from afterwit.dialects.messages_output import encoder, error_body
from afterwit.dialects.request import JsonForm, ModelRequest, RequestLimits, ToolChoice
from afterwit.dialects.sampling import parse_sampling
from afterwit.ids import STORED_PREFIX, with_prefix
from afterwit.message import Conversation, Message, ToolCall

_CHOICES = {
    "auto": ToolChoice.AUTO,
    "none": ToolChoice.NONE,
    "any": ToolChoice.REQUIRED,
    "tool": ToolChoice.REQUIRED,
}

ROLES = ("user", "assistant", "system")

_BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*\n?", re.MULTILINE)
"""A line that Claude Code adds to the system text for its servers. It changes with every request."""

_FAILED = "Error: "
"""Prefix of the text of a failed tool: templates lack a field for failures."""

_SILENT = frozenset(
    {"thinking", "redacted_thinking", "server_tool_use", "tool_reference", "container_upload"}
)
"""Thoughts are read with the assistant's message. Anthropic's own servers add the other blocks."""

_SERVER_RESULT = "_tool_result"
"""Suffix of the results of Anthropic's own tools, such as `web_search_tool_result`."""

PATH = "/v1/messages"


def parse_request(body: Any, limits: RequestLimits) -> ModelRequest:
    """Read a request's JSON. Raises RequestError 400 with the name of the malformed field."""
    data = as_object(body, "the body")
    thinks = None
    if data.get("thinking") is not None:
        kind = as_object(data["thinking"], "thinking").get("type")
        thinks = as_text(kind, "thinking.type") != "disabled"
    messages, prefill = _parse_begun(data.get("system"), data.get("messages"), limits)
    tools = parse_tools(data.get("tools"), limits.max_tools, _function)
    tool_choice, required_tool, parallel_calls = parse_tool_choice(data.get("tool_choice"), tools)
    return ModelRequest(
        model=text(data, "model"),
        conversation=Conversation(
            messages=messages,
            tools=tools,
            template_args={} if thinks is None else {"enable_thinking": thinks},
        ),
        sampling=parse_sampling(data, limits, lengths=("max_tokens",), stops="stop_sequences"),
        stream=flag(data, "stream"),
        tool_choice=tool_choice,
        required_tool=required_tool,
        parallel_calls=parallel_calls,
        show_reasoning=bool(thinks),
        form=_form(data),
        prefill=prefill,
    )


def _form(data: Mapping[str, Any]) -> JsonForm | None:
    """The required form, in the current field or in the beta's."""
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


def _function(tool: Tool, where: str) -> Tool | None:
    """A tool of the client's own, in chat's form; None for tools that Anthropic's servers define or run."""
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


def parse_tool_choice(value: Any, tools: Sequence[Tool]) -> tuple[ToolChoice, str | None, bool]:
    """Whether the response calls a tool, which one if it is named, and whether it may make several calls."""
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


def _parse_begun(system: Any, messages: Any, limits: RequestLimits) -> tuple[tuple[Message, ...], str]:
    """The messages before the response, and its prefill: a last message of the assistant.

    System text is one message at the beginning, as templates require. Claude Code also sends some later:
    that becomes a reminder, in the form of the client's own reminders.
    """
    if _count_blocks([system]) > limits.max_parts:
        raise wrong_value("system", f"holds more than {limits.max_parts} blocks")
    said = parse_messages(messages, limits)
    begun = list(takewhile(lambda message: message.role == "system", said))
    texts = [_BILLING.sub("", text_of(block) or "") for block in parse_blocks(system, "system")]
    text = "\n".join(filter(None, [*texts, *(message.content for message in begun)]))
    rest = [
        Message(role="user", content=f"<system-reminder>\n{message.content}\n</system-reminder>")
        if message.role == "system"
        else message
        for message in said[len(begun) :]
    ]
    prefill = ""
    if rest and rest[-1].role == "assistant" and not rest[-1].tool_calls:
        prefill = (rest.pop().content or "").strip()
    if not rest:
        raise wrong_value("messages", "must hold at least one message of the user")
    return (*((Message(role="system", content=text),) if text else ()), *rest), prefill


def parse_messages(value: Any, limits: RequestLimits) -> list[Message]:
    """The `messages` of a request, with a message for each tool result. Raises RequestError 400."""
    written = as_list(value, "messages", most=limits.max_messages)
    if not written:
        raise wrong_value("messages", "must hold at least one message")
    blocks = _count_blocks(message.get("content") for message in written if isinstance(message, dict))
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
    if role not in ROLES:
        raise wrong_value(f"{where}.role", f"must be one of {', '.join(ROLES)}, not {shown(role)}")
    blocks = parse_blocks(data.get("content"), f"{where}.content")
    if role == "user":
        return _user(blocks)
    if role == "assistant":
        return [_assistant(blocks)]
    return [Message(role="system", content=_BILLING.sub("", _joined(blocks)))]


def _user(blocks: Sequence[Block]) -> list[Message]:
    """A message for each tool result, and one for the blocks between two results."""
    messages: list[Message] = []
    for is_result, group in groupby(blocks, lambda block: block.kind == "tool_result"):
        if is_result:
            messages += [_result(block) for block in group]
        else:
            texts = _texts_of(group)
            ends = accumulate(len(text) + 1 for text in texts[:-1])
            messages.append(Message(role="user", content="\n".join(texts), breaks=tuple(ends)))
    return messages or [Message(role="user", content="")]


def _result(block: Block) -> Message:
    text = _joined(parse_blocks(block.data.get("content"), f"{block.where}.content"))
    if block.data.get("is_error") is True and not text.lower().startswith("error"):
        text = _FAILED + text
    return Message(
        role="tool", content=text, tool_call_id=with_prefix(STORED_PREFIX, block.text("tool_use_id"))
    )


def _assistant(blocks: Sequence[Block]) -> Message:
    """One message. Its texts are one text, even if calls interrupt it."""
    calls = tuple(
        ToolCall(
            id=with_prefix(STORED_PREFIX, block.text("id")),
            name=block.text("name"),
            arguments=as_arguments(block.data.get("input"), f"{block.where}.input"),
        )
        for block in blocks
        if block.kind == "tool_use"
    )
    thoughts = [block.text("thinking") for block in blocks if block.kind == "thinking"]
    texts = [text_of(block) or "" for block in blocks if block.kind != "tool_use"]
    content = "".join(texts)
    return Message(
        role="assistant",
        content=content if content or not calls else None,
        reasoning="".join(thoughts) or None,
        tool_calls=calls,
    )


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


def _count_blocks(contents: Iterable[Any]) -> int:
    """Blocks of contents and of the tool results in them. Counting is much faster than parsing."""
    lists = [content for content in contents if isinstance(content, list)]
    inner = [block.get("content") for content in lists for block in content if isinstance(block, dict)]
    return sum(map(len, lists)) + sum(len(content) for content in inner if isinstance(content, list))


def _block(value: Any, where: str) -> Block:
    data = {"type": "text", "text": value} if isinstance(value, str) else as_object(value, where)
    return Block(kind=as_text(data.get("type"), f"{where}.type"), data=data, where=where)


def text_of(block: Block) -> str | None:
    """The text of a block, or its placeholder; None for blocks without a meaning to this model."""
    match block.kind:
        case "text":
            return block.text("text")
        case "document":
            return _document(block)
        case "search_result":
            return _search_result(block)
        case kind if kind in _SILENT or kind.endswith(_SERVER_RESULT):
            return None
    return omitted(block.kind)


def _joined(blocks: Iterable[Block]) -> str:
    return "\n".join(_texts_of(blocks))


def _texts_of(blocks: Iterable[Block]) -> list[str]:
    return [text for text in map(text_of, blocks) if text is not None]


def _document(block: Block) -> str:
    """A document's text, or the placeholder of a file."""
    where = f"{block.where}.source"
    source = as_object(block.data.get("source"), where)
    match source.get("type"):
        case "text":
            return as_text(source.get("data"), f"{where}.data")
        case "content":
            return _plain(source.get("content"), f"{where}.content")
        case _:
            return omitted(block.kind)


def _search_result(block: Block) -> str:
    """A search result: its title, its source and its text."""
    heads = (block.data.get(name) for name in ("title", "source"))
    texts = [head for head in heads if isinstance(head, str)]
    return "\n".join([*texts, _plain(block.data.get("content"), f"{block.where}.content")])


def _plain(value: Any, where: str) -> str:
    """The text of a content inside a block, with placeholders for other blocks, however deep they nest."""
    blocks = parse_blocks(value, where)
    return "\n".join(block.text("text") if block.kind == "text" else omitted(block.kind) for block in blocks)


ANTHROPIC_MESSAGES = Dialect(
    name="anthropic_messages",
    path=PATH,
    parse=parse_request,
    encoder=encoder,
    error_body=error_body,
    extra_routes=(
        TokenCount(
            path=f"{PATH}/count_tokens", parse=parse_request, body=lambda tokens: {"input_tokens": tokens}
        ),
    ),
    request_id_header="request-id",
)
