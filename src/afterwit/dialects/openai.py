"""The shapes that OpenAI's two protocols share: content, tool choices, log-probs, errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from afterwit.dialects.fields import (
    Item,
    Tool,
    as_list,
    as_text,
    integer,
    omitted,
    shown,
    wrong_type,
    wrong_value,
)
from afterwit.dialects.request import Field, ToolChoice
from afterwit.dialects.response import TokenLogprob
from afterwit.errors import RequestError

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of content parts that are text, and the field that holds it."""

_REASONING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Without text: templates read reasoning from its own field."""

MOST_ALTERNATIVES = 20


def text_of(item: Item, name: str) -> str | None:
    """The text of a content: a string, or an array of parts, joined as lines. None: no content."""
    value, where = item.get(name), item.at(name)
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(where, "a string or an array of parts", value)
    texts = []
    for index, each in enumerate(value):
        if isinstance(each, str):
            texts.append(each)
            continue
        part = Item(each, f"{where}[{index}]")
        kind = part.text("type")
        if kind in _TEXT_PARTS:
            field = _TEXT_PARTS[kind]
            texts.append("" if part.get(field) is None and field in part.data else part.text(field))
        elif kind not in _REASONING_PARTS:
            texts.append(omitted(kind))
    return "\n".join(texts)


def custom_arguments(item: Item) -> str:
    """The free text of a call of a `custom` tool, as the one argument `input`."""
    return json.dumps({"input": item.optional("input") or ""}, ensure_ascii=False)


def parse_tool_choice(
    value: Any, tools: Sequence[Tool], *, nested: bool
) -> tuple[ToolChoice, str | None, tuple[Tool, ...]]:
    """Whether the response calls a tool, the tool's name if one is required, and the allowed tools.

    `nested`: `function` and `allowed_tools` are objects in a field of their type, as in chat.
    """
    tools = tuple(tools)
    if value is None or isinstance(value, str):
        return _mode(ToolChoice.AUTO if value is None else value, tools), None, tools
    choice = Item(value, "tool_choice")
    kind = as_text(choice.data.get("type", "function" if nested else None), "tool_choice.type")
    if kind == "function":
        return ToolChoice.REQUIRED, _known_name(choice, tools, nested=nested), tools
    if kind != "allowed_tools":
        message = f"tool_choice asks for a tool of type {shown(kind)}: this server calls functions only."
        raise RequestError(400, "unsupported_tool_choice", message, param="tool_choice")
    choice = choice.item(kind) if nested else choice
    entries = [Item(one, choice.at("tools")) for one in as_list(choice.get("tools"), choice.at("tools"))]
    names = {_known_name(one, tools, nested=nested) for one in entries if one.get("type") == "function"}
    allowed = tuple(tool for tool in tools if tool["function"]["name"] in names)
    return _mode(choice.data.get("mode", ToolChoice.AUTO), allowed), None, allowed


def _mode(value: Any, tools: Sequence[Tool]) -> ToolChoice:
    mode = as_text(value, "tool_choice")
    if mode not in set(ToolChoice):
        raise wrong_value("tool_choice", f"must be auto, none, required or a function, not {shown(mode)}")
    if mode == ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "asks for a call, but there are no functions among the tools")
    return ToolChoice(mode)


def _known_name(choice: Item, tools: Sequence[Tool], *, nested: bool) -> str:
    name = (choice.item("function") if nested else choice).text("name")
    if name not in {tool["function"]["name"] for tool in tools}:
        raise wrong_value(choice.where, f"names {shown(name)}, which is not among the tools")
    return name


def parse_top_logprobs(data: Mapping[str, Any]) -> int:
    """The number of alternatives for each token. Raises RequestError 400."""
    return integer(data, "top_logprobs", low=0, high=MOST_ALTERNATIVES) or 0


def logprob_objects(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """One object for each token."""
    return [{**_logprob(token), "top_logprobs": list(map(_logprob, token.top))} for token in tokens]


def _logprob(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.text.encode())}


def error_form(error: RequestError, params: Mapping[str | None, str]) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`. `params`: the client's names of fields that differ."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    named: dict[str | None, str] = {Field.STOP_IDS: "stop_token_ids", **params}
    return {
        "error": {
            "message": error.message,
            "type": "rate_limit_error" if error.status == 429 else kind,
            "param": named.get(error.param, error.param),
            "code": error.code,
        }
    }
