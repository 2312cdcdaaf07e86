"""A turn with known truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from afterwit.demo.world import Message

CaseKind = Literal["complaint", "approval", "failure", "quiet"]


def text_message(role: str, content: str) -> Message:
    """A message with text and nothing else."""
    return {"role": role, "content": content}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledCase:
    """One answered turn, what came next, and the truth: its reward and the rules a hint must name."""

    kind: CaseKind
    request: str
    response: Mapping[str, Any]
    following: tuple[Mapping[str, Any], ...]
    rules: tuple[str, ...] = ()

    @property
    def reward(self) -> int:
        return 1 if self.kind in ("quiet", "approval") else -1
