"""The golden transcripts: one file for each convention, named as it is."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from afterwit.chat_format.families import CONVENTIONS, Convention, Thought

GOLDEN = Path(__file__).parent / "golden"


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TEXT = {"type": "string"}
TOOLS = (
    tool("look"),
    tool("read", path=TEXT),
    tool("search", query=TEXT, filters={"type": "object"}),
    tool(
        "set",
        on={"type": "boolean"},
        count={"type": "integer"},
        ratio={"type": "number"},
        note=TEXT,
        owner={"anyOf": [TEXT, {"type": "null"}]},
        any={},
    ),
)


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """A model's text, and the response that a client gets."""

    convention: Convention
    name: str
    text: str
    opened: str = ""
    """The reasoning mark that the prompt ends with."""
    reasoning: str = ""
    content: str = ""
    calls: tuple[tuple[str, str], ...] = ()

    @property
    def thought(self) -> Thought | None:
        return self.convention.open_thought(self.opened) if self.opened else None

    def __str__(self) -> str:
        return f"{self.convention.name}: {self.name}"


@cache
def golden(name: str) -> dict[str, Any]:
    """The file of a convention."""
    return tomllib.loads((GOLDEN / f"{name}.toml").read_text(encoding="utf-8"))


def transcripts() -> list[Transcript]:
    """Every golden transcript."""
    return [
        Transcript(convention=entry, **row | {"calls": tuple(map(tuple, row.get("calls", ())))})
        for entry in CONVENTIONS
        for row in golden(entry.name)["transcript"]
    ]
