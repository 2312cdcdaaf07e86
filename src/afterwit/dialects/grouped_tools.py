"""Tools in groups, as Codex sends those of each MCP server. Chat templates know no groups, so the model is
offered `namespace__name`, and the client gets both names back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from afterwit.dialects.fields import Item, as_items, as_list

TOOL_ITEMS = ("additional_tools", "tool_search_output")
"""Items that add tools to those of the request."""

NAMESPACE, NO_NAMESPACE, JOINT = "namespace", "functions", "__"
"""The type of a group, the group of Codex's own tools, and what joins the names of a group and a tool."""


def with_added_tools(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request with the tools that items add to its own, as Codex sends all of them to some models."""
    items = data.get("input")
    added = [
        tool
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, Mapping) and item.get("type") in TOOL_ITEMS
        for tool in as_list(item.get("tools"), "input.tools")
    ]
    return {**data, "tools": [*_tools(data), *added]} if added else data


def _tools(data: Mapping[str, Any]) -> list[Any]:
    return [] if data.get("tools") is None else as_list(data["tools"], "tools")


def ungrouped(data: Mapping[str, Any]) -> Iterator[Any]:
    """The tools of a request, with those of each group in its place. Raises RequestError."""
    for index, tool in enumerate(_tools(data)):
        if isinstance(tool, Mapping) and tool.get("type") == NAMESPACE:
            group = Item(tool, f"tools[{index}]")
            for one in as_items(as_list(group.get("tools"), group.at("tools")), group.at("tools")):
                yield {**one.data, "name": joined_name(group.text("name"), one.text("name"))}
        else:
            yield tool


def joined_name(namespace: str | None, name: str) -> str:
    """The name that the model knows."""
    if namespace is None or namespace == NO_NAMESPACE:
        return name
    return f"{namespace.removesuffix(JOINT)}{JOINT}{name}"


def names_in_groups(tools: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """By the name that the model knows: the fields by which the client knows a tool of a group."""
    return {
        joined_name(group["name"], tool["name"]): {"name": tool["name"], NAMESPACE: group["name"]}
        for group in tools
        if group.get("type") == NAMESPACE
        for tool in group["tools"]
    }
