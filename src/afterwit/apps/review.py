"""The turns that wait for a person's review, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from afterwit.apps.tables import one_line
from afterwit.core.teaching import Flag, Rule
from afterwit.store import Record, ReviewOutcome, Store

WORDS: Mapping[Flag, str] = {
    Flag.TOOL_WORDS: "the hint comes from what tools returned; no person spoke",
    Flag.LINK: "the hint names an address that no person named",
    Flag.COMMAND: "the hint holds a command that no person named",
    Flag.STANDING_ORDER: "the hint orders something for other conversations or people",
    Flag.UNRELATED: "the hint names something that nothing in the conversation names",
    Flag.CONTRADICTS: "it is against what several other sources approved, or its source has been before",
}
WHY = {
    ReviewOutcome.ACCEPTED: "accepted: it may train",
    ReviewOutcome.REFUSED: "refused: it does not train",
    ReviewOutcome.IN_UPDATE: "an update trains it at this moment: nothing changed",
    ReviewOutcome.TRAINED: "it has trained already: nothing changed; `afterwit rollback` takes it back",
    ReviewOutcome.NOT_WAITING: "it has no verdict that could train: nothing changed",
}
WIDTH = 200
"""Characters of a response that are shown."""


def waiting_for_review(store: Store, rule: Rule, *, now: float) -> list[Record]:
    """The turns that a person is asked about, oldest first."""
    found = [
        turn.turn
        for turn in store.waiting(now=now)
        if rule.withholds(turn.flags, accepted=turn.accepted, rewarded=turn.rewarded)
    ]
    return [store.turn(turn) for turn in found]


def described(record: Record) -> Iterator[str]:
    """A turn in a few lines: what would be learned from it, and why that is doubtful."""
    verdict = record.verdict
    reward = 0 if verdict is None else verdict.reward
    yield f"{record.turn.id}  reward {reward:+d}  from {record.turn.scope}"
    yield f"  response  {one_line(record.turn.message, WIDTH)}"
    for hint in () if verdict is None else verdict.hints:
        yield f"  hint      {' '.join(hint.split())}"
    for flag in record.flags:
        yield f"  why       {WORDS[flag]}"


def as_json(record: Record) -> dict[str, Any]:
    """The same for programs."""
    verdict = record.verdict
    return {
        "turn": record.turn.id,
        "session": record.turn.session,
        "source": record.turn.scope,
        "reward": None if verdict is None else verdict.reward,
        "hints": [] if verdict is None else list(verdict.hints),
        "flags": [flag.value for flag in record.flags],
        "accepted": record.accepted,
    }
