"""The worlds of the demo."""

from __future__ import annotations

from collections.abc import Mapping

from afterwit.demo.chat.world import ChatWorld
from afterwit.demo.tools.world import ToolsWorld
from afterwit.demo.world import World
from afterwit.errors import SettingError

WORLDS: Mapping[str, World] = {"tools": ToolsWorld(), "chat": ChatWorld()}


def world_named(name: str) -> World:
    """SettingError for an unknown world."""
    if name not in WORLDS:
        raise SettingError(f"--world {name}: it must be one of {', '.join(WORLDS)}")
    return WORLDS[name]
