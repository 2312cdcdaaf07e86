"""The suite of a home's own history: what people approved, and how much of it a new version has lost.

Skills are lost one at a time, so items are counted in strata, and no stratum's loss is averaged away by the
others: the evidence is the mean of the strata's e-values, not the e-value of all items together.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from afterwit.core.message import Message
from afterwit.core.promotion.evidence import e_value

TEXT = "text"
"""The stratum of responses without a tool call."""


class Standing(StrEnum):
    """What a version may be used for."""

    HELD = "held"
    """It lost too much to serve."""
    DOUBTFUL = "doubtful"
    """It serves, but nothing falls back to it."""
    CLEAN = "clean"
    """It serves, and a hold falls back to it."""
    CONFIRMED = "confirmed"
    """It served sessions that ended well: an alarm falls back to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A turn that people approved, which a new version should still take as it was sampled."""

    turn: str
    stratum: str
    source: str
    """Who approved it: the turn's scope."""
    since: float
    """When it was approved, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """What a version lost: for each stratum, how many of how many items."""

    lost: Mapping[str, tuple[int, int]]
    evidence: float
    """The mean e-value of the strata; 1 without items."""
    standing: Standing

    @property
    def worst(self) -> str | None:
        """The stratum that lost the greatest share; None if none lost anything."""
        shares = {name: lost / of for name, (lost, of) in self.lost.items() if lost}
        return max(shares, key=lambda name: shares[name], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The rule: which items stand for the history, and how much loss is too much."""

    bound: float = 0.10
    """The share of what was approved that may be lost."""
    hold_at: float = 20.0
    """Evidence from which a version is held: a false hold in at most 1 of 20, were items independent."""
    clean_below: float = 3.0
    """A version is clean if the e-value of each stratum is below this."""
    per_stratum: int = 8
    """Items of one stratum, the newest ones."""
    per_source: int = 3
    """Items of one stratum that one source approved."""

    def chosen(self, items: Iterable[Item], *, without: Collection[str] = ()) -> list[Item]:
        """The items to score, newest first; turns in `without`, those of the batch itself, are left out."""
        room: Counter[str] = Counter()
        given: Counter[tuple[str, str]] = Counter()
        found = []
        for item in sorted(items, key=lambda item: (-item.since, item.turn)):
            place = (item.stratum, item.source)
            if item.turn in without or room[item.stratum] >= self.per_stratum:
                continue
            if given[place] >= self.per_source:
                continue
            room[item.stratum] += 1
            given[place] += 1
            found.append(item)
        return found

    def result(self, kept: Iterable[tuple[Item, bool]]) -> SuiteResult:
        """What a version's answers say: each item with whether the version still takes it."""
        outcomes: dict[str, list[bool]] = defaultdict(list)
        for item, still in kept:
            outcomes[item.stratum].append(still)
        lost = {name: (stills.count(False), len(stills)) for name, stills in sorted(outcomes.items())}
        values = [e_value(gone, of, bound=self.bound) for gone, of in lost.values()]
        evidence = math.fsum(values) / len(values) if values else 1.0
        return SuiteResult(lost=lost, evidence=evidence, standing=self._standing(values, evidence))

    def _standing(self, values: list[float], evidence: float) -> Standing:
        if evidence >= self.hold_at:
            return Standing.HELD
        return Standing.CLEAN if max(values, default=1.0) < self.clean_below else Standing.DOUBTFUL


def stratum_of(response: Message) -> str:
    """The name of the first tool call with its boolean flags (`delete dry_run=true`), or `text`."""
    if not response.tool_calls:
        return TEXT
    call = response.tool_calls[0]
    flags = (
        f"{name}={json.dumps(value)}"
        for name, value in sorted(_arguments(call.arguments).items())
        if isinstance(value, bool)
    )
    return " ".join([call.name, *flags])


def _arguments(text: str) -> Mapping[str, object]:
    """The arguments of a call; empty if they are no JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
