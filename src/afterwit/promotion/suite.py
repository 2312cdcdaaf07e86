"""The suite of a home's own history: what people approved, and how much of it a new version has lost.

Skills are lost one at a time, so items are counted in strata, and no stratum's loss is averaged away by the
others: the evidence is the mean of the strata's e-values, not the e-value of all items together.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from afterwit.promotion.evidence import e_value
from afterwit.promotion.items import Item

BLOCK = 16
"""Ids that items share are counted in parts of so many."""


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
class SuiteResult:
    """What a version lost: for each stratum, how many of how many items."""

    lost: Mapping[str, tuple[int, int]]
    evidence: float
    """The mean e-value of the strata; 1 without items."""
    standing: Standing
    lost_turns: tuple[str, ...] = ()
    """The items that were lost."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SuiteResult:
        """From the JSON of its fields."""
        return cls(
            lost={name: (lost, of) for name, (lost, of) in data["lost"].items()},
            evidence=data["evidence"],
            standing=Standing(data["standing"]),
            lost_turns=tuple(data["lost_turns"]),
        )

    @property
    def worst(self) -> str | None:
        """The stratum that lost the greatest share; None if none lost anything."""
        shares = {name: lost / of for name, (lost, of) in self.lost.items() if lost}
        return max(shares, key=lambda name: shares[name], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The rule: which items stand for the history, and how much loss is too much."""

    bound: float
    """The share of what was approved that may be lost."""
    hold_at: float
    """Evidence from which a version is held: a false hold in at most 1 of 20, were items independent."""
    clean_below: float
    """A version is clean if the e-value of each stratum is below this. One response alone is no doubt."""
    per_stratum: int
    """Items of one stratum, the newest ones."""
    per_source: int
    """Items of one stratum that one source approved, or an equal part of them if that is more."""

    def chosen(
        self,
        items: Iterable[Item],
        *,
        without: Collection[str] = (),
        tokens: int | None = None,
        turn: int = 0,
        shared: bool = False,
    ) -> list[Item]:
        """The items to score; turns in `without`, those of the batch itself, are left out.

        With `tokens`, the strata give one item each, again and again, while the next one fits. `turn` says
        which stratum begins, so that none is always the one left out. `shared`: what several items begin
        with is read once.
        """
        found = self._newest(items, without)
        if tokens is None:
            return found
        return _within(found, tokens, turn, shared)

    def _newest(self, items: Iterable[Item], without: Collection[str]) -> list[Item]:
        left = sorted(
            (item for item in items if item.turn not in without), key=lambda item: (-item.since, item.turn)
        )
        sources = Counter(stratum for stratum, _ in {(item.stratum, item.source) for item in left})
        room: Counter[str] = Counter()
        given: Counter[tuple[str, str]] = Counter()
        found = []
        for item in left:
            place = (item.stratum, item.source)
            most = max(self.per_source, math.ceil(self.per_stratum / sources[item.stratum]))
            if room[item.stratum] >= self.per_stratum or given[place] >= most:
                continue
            room[item.stratum] += 1
            given[place] += 1
            found.append(item)
        return found

    def result(self, kept: Iterable[tuple[Item, bool]]) -> SuiteResult:
        """What a version's answers say: each item with whether the version still takes it."""
        outcomes: dict[str, list[bool]] = defaultdict(list)
        lost_turns = []
        for item, still in kept:
            outcomes[item.stratum].append(still)
            if not still:
                lost_turns.append(item.turn)
        lost = {name: (stills.count(False), len(stills)) for name, stills in sorted(outcomes.items())}
        values = [e_value(gone, of, bound=self.bound) for gone, of in lost.values()]
        evidence = math.fsum(values) / len(values) if values else 1.0
        doubts = [value for value, (_, of) in zip(values, lost.values(), strict=True) if of > 1]
        return SuiteResult(
            lost=lost,
            evidence=evidence,
            standing=self._standing(doubts, evidence),
            lost_turns=tuple(lost_turns),
        )

    def _standing(self, doubts: list[float], evidence: float) -> Standing:
        if evidence >= self.hold_at:
            return Standing.HELD
        return Standing.CLEAN if max(doubts, default=1.0) < self.clean_below else Standing.DOUBTFUL


def _within(items: Sequence[Item], tokens: int, turn: int, shared: bool) -> list[Item]:
    strata: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        strata[item.stratum].append(item)
    names = sorted(strata)
    names = names[turn % len(names) :] + names[: turn % len(names)] if names else []
    rounds = (strata[name][at] for at in range(len(items)) for name in names if at < len(strata[name]))
    found, left, read = [], tokens, set[int]()
    for item in rounds:
        beginnings = _beginnings(item) if shared else []
        cost = len(item) - BLOCK * sum(beginning in read for beginning in beginnings)
        if cost <= left:
            left -= cost
            read.update(beginnings)
            found.append(item)
    return found


def _beginnings(item: Item) -> list[int]:
    """A hash of each beginning of whole blocks of the item's ids: items share those that are equal."""
    ids, found = item.prompt_ids + item.ids, [0]
    for end in range(BLOCK, len(ids) + 1, BLOCK):
        found.append(hash((found[-1], ids[end - BLOCK : end])))
    return found[1:]
