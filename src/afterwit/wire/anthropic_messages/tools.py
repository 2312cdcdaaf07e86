"""Tools and tool choice of an Anthropic request, in the form that chat templates print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from afterwit.wire.fields import as_list, as_object, as_text, flag, shown, storable, wrong_value
from afterwit.wire.request import ToolChoice

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
