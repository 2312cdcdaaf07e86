"""The turns that wait for a person's review, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping

from afterwit.core.teaching import Flag, Rule
from afterwit.store import Record, ReviewOutcome, Store

WORDS: Mapping[Flag, str] = {
    Flag.TOOL_WORDS: "the hint comes from what tools returned; no person spoke",
    Flag.LINK: "the hint names an address that no person named",
    Flag.COMMAND: "the hint holds a command that no person named",
    Flag.STANDING_ORDER: "the hint orders something for other conversations or people",
    Flag.UNRELATED: "the hint names something that nothing in the conversation names",
    Flag.TOOLS_CONTRADICT: "a call failed of a kind that several other sources approved",
    Flag.CONTRADICTS: "it is against what several other sources said, or its source has been before",
}
WHY: Mapping[ReviewOutcome, str] = {
    ReviewOutcome.ACCEPTED: "accepted: it may train",
    ReviewOutcome.REFUSED: "refused: it does not train",
    ReviewOutcome.IN_UPDATE: "an update trains it at this moment: nothing changed",
    ReviewOutcome.TRAINED: "it has trained already: nothing changed; `afterwit rollback` takes it back",
    ReviewOutcome.NOT_WAITING: "it has no verdict that could train: nothing changed",
}


def waiting_for_review(store: Store, rule: Rule, *, now: float, limit: int | None = None) -> list[Record]:
    """The turns that a person is asked about, oldest first."""
    found = [
        turn.turn
        for turn in store.waiting(now=now)
        if rule.withholds(turn.flags, accepted=turn.accepted, rewarded=turn.rewarded)
    ]
    return [store.turn(turn) for turn in found[:limit]]
