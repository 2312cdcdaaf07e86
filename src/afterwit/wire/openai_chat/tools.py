"""Tools and tool choice of an OpenAI chat request.

Only functions are offered to the model: tools of other types are left out, as in the other dialects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.wire.fields import as_list, as_object, as_text, shown, storable, wrong_value
from afterwit.wire.request import ToolChoice

Tools = tuple[Mapping[str, Any], ...]


def parse_tools(value: Any, most: int) -> Tools:
    """The functions among `tools`, of which there may be `most`, as they were sent: templates print them."""
    tools = [] if value is None else as_list(value, "tools", most=most)
    read = (_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))
    return tuple(tool for tool in read if tool is not None)


def _tool(value: Any, where: str) -> Mapping[str, Any] | None:
    tool = as_object(value, where)
    if as_text(tool.get("type"), f"{where}.type") != "function":
        return None
    name = as_text(as_object(tool.get("function"), f"{where}.function").get("name"), f"{where}.function.name")
    if not name:
        raise wrong_value(f"{where}.function.name", "must not be empty")
    storable(tool, where)
    return tool


def parse_tool_choice(value: Any, tools: Tools) -> tuple[ToolChoice, str | None, Tools]:
    """Whether a call is asked for, the name of the tool if one is named, and the tools that may be called."""
    if value is None:
        return ToolChoice.AUTO, None, tools
    if isinstance(value, str):
        return _word(value, tools), None, tools
    choice = as_object(value, "tool_choice")
    kind = choice.get("type", "function")
    if kind == "allowed_tools":
        listed = as_object(choice.get(kind), f"tool_choice.{kind}")
        allowed = _allowed(listed, tools)
        return _word(listed.get("mode", ToolChoice.AUTO), allowed), None, allowed
    if kind != "function":
        message = f"tool_choice asks for a tool of type {shown(str(kind))}: this server calls functions only."
        raise RequestError(400, "unsupported_tool_choice", message, param="tool_choice")
    return ToolChoice.REQUIRED, _known(choice, tools, "tool_choice"), tools


def _word(value: Any, tools: Tools) -> ToolChoice:
    word = as_text(value, "tool_choice")
    if word not in set(ToolChoice):
        raise wrong_value("tool_choice", f"must be auto, none, required or a function, not {shown(word)}")
    if word == ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "asks for a call, but there are no functions among the tools")
    return ToolChoice(word)


def _allowed(choice: Mapping[str, Any], tools: Tools) -> Tools:
    """The functions that the choice names."""
    where = "tool_choice.allowed_tools.tools"
    entries = [as_object(entry, where) for entry in as_list(choice.get("tools"), where)]
    names = {_known(entry, tools, where) for entry in entries if entry.get("type") == "function"}
    return tuple(tool for tool in tools if tool["function"]["name"] in names)


def _known(choice: Mapping[str, Any], tools: Tools, where: str) -> str:
    function = as_object(choice.get("function"), f"{where}.function")
    name = as_text(function.get("name"), f"{where}.function.name")
    if name not in {tool["function"]["name"] for tool in tools}:
        raise wrong_value(where, f"names {shown(name)}, which is not among the tools")
    return name
