"""Tools and tool choice of an OpenAI chat request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.wire.fields import as_list, as_object, as_text, shallow, shown, wrong_value
from afterwit.wire.request import ToolChoice


def parse_tools(value: Any, most: int) -> tuple[Mapping[str, Any], ...]:
    """The `tools` of a request, as they were sent: templates print them. At most `most`."""
    if value is None:
        return ()
    return tuple(
        _tool(tool, f"tools[{index}]") for index, tool in enumerate(as_list(value, "tools", most=most))
    )


def _tool(value: Any, where: str) -> Mapping[str, Any]:
    tool = as_object(value, where)
    kind = as_text(tool.get("type"), f"{where}.type")
    if kind != "function":
        raise RequestError(
            400, "unsupported_tool", f"{where} is of type {shown(kind)}, not a function", param=where
        )
    name = as_text(as_object(tool.get("function"), f"{where}.function").get("name"), f"{where}.function.name")
    if not name:
        raise wrong_value(f"{where}.function.name", "must not be empty")
    shallow(tool, where)
    return tool


def parse_tool_choice(value: Any, tools: Sequence[Mapping[str, Any]]) -> tuple[ToolChoice, str | None]:
    """Whether a call is asked for, and the name of the tool if one is named."""
    if value is None:
        return ToolChoice.AUTO, None
    choice, name = _word(value) if isinstance(value, str) else _function(value)
    if choice is ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "asks for a call, but there are no tools")
    if name is not None and name not in {tool["function"]["name"] for tool in tools}:
        raise wrong_value("tool_choice", f"names {shown(name)}, which is not among the tools")
    return choice, name


def _word(value: str) -> tuple[ToolChoice, None]:
    if value not in set(ToolChoice):
        raise wrong_value("tool_choice", f"must be auto, none, required or a function, not {shown(value)}")
    return ToolChoice(value), None


def _function(value: Any) -> tuple[ToolChoice, str]:
    function = as_object(as_object(value, "tool_choice").get("function"), "tool_choice.function")
    return ToolChoice.REQUIRED, as_text(function.get("name"), "tool_choice.function.name")
