"""The judged turns that wait for a person's review."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from afterwit.store import Record, Store
from afterwit.verdict import Flag

AGAINST_OTHERS = frozenset({Flag.CONTRADICTS, Flag.TOOLS_CONTRADICT})
"""Flags that wait for a person under every kind of review."""


class Review(StrEnum):
    """The turns that a person must accept before they train."""

    OFF = "off"
    """Only those that contradict several other sources."""
    FLAGGED = "flagged"
    """Those with a flag."""
    ALL = "all"
    """Every one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Decides what trains without a person's review."""

    review: Review = Review.FLAGGED
    tool_hints: bool = False
    """Whether hints teach that come from tool results alone."""

    def withholds(self, flags: Collection[Flag], *, accepted: bool, rewarded: bool) -> bool:
        """Whether a turn waits for a person. `rewarded`: it carries a reward term, not a hint alone.

        Words of tools hold no reward back: it trains without the hint.
        """
        if accepted:
            return False
        if self.review is Review.ALL or not AGAINST_OTHERS.isdisjoint(flags):
            return True
        hintless = not rewarded and not self.hints_teach(flags, accepted=accepted)
        return hintless or (self.review is Review.FLAGGED and bool(set(flags) - {Flag.TOOL_WORDS}))

    def hints_teach(self, flags: Collection[Flag], *, accepted: bool) -> bool:
        """Whether a turn that is not withheld learns from its hints."""
        return accepted or self.tool_hints or Flag.TOOL_WORDS not in flags


def waiting_for_review(store: Store, rule: Rule, *, now: float, limit: int | None = None) -> list[Record]:
    """The turns that wait for a person, oldest first."""
    found = [
        turn.turn
        for turn in store.waiting(now=now)
        if rule.withholds(turn.flags, accepted=turn.accepted, rewarded=turn.rewarded)
    ]
    return [store.turn(turn) for turn in found[:limit]]
