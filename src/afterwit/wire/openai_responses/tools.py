"""Tools and tool choice of a Responses request.

Only functions are offered to the model. Clients also list tools that OpenAI's servers run (`web_search`) and
forms that no chat template knows (`custom`, `namespace`): these are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.wire.fields import as_list, as_object, as_text, shown, storable, wrong_value
from afterwit.wire.request import ToolChoice

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
