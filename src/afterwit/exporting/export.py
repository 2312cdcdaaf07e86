"""`afterwit export`: the store's turns in other programs' formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import orjson

from afterwit.exporting.example import Example, LeftOut
from afterwit.exporting.formats import FORMATS
from afterwit.judging.hinted_prompts import Placement, splice
from afterwit.lifecycle import Reason
from afterwit.objective.choices import BASELINES, Rewarded
from afterwit.objective.settings import ObjectiveSettings
from afterwit.store import Filter, Record, Store
from afterwit.teaching.redaction import Redaction
from afterwit.text import counted

AT_ONCE = 256
"""Turns whose groups are looked up together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export."""

    rows: int
    left_out: Counter[str] = field(default_factory=Counter)
    """Turns that are in no row, by reason."""

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.left_out.most_common())
        left = f"; {self.left_out.total()} turns left out: {reasons}" if reasons else ""
        return f"{counted(self.rows, 'row')} written{left}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """The store's turns as examples, as often as they are iterated."""

    store: Store
    where: Filter
    objective: ObjectiveSettings
    placement: Placement
    redaction: Redaction
    with_ids: bool = False
    """Whether the format holds token ids, in which secrets cannot be replaced."""

    def __iter__(self) -> Iterator[Example]:
        page: list[Record] = []
        for record in self.store.turns(self.where):
            page.append(record)
            if len(page) == AT_ONCE:
                yield from self._examples(page)
                page = []
        yield from self._examples(page)

    def _examples(self, records: list[Record]) -> Iterator[Example]:
        ids = [record.turn.id for record in records if record.verdict is not None]
        groups = self.store.group_rewards(ids) if ids and self.objective.reads_groups else {}
        excluded = self.store.excluded()
        for record in records:
            reason = self._reason(record, excluded)
            yield self._example(record, reason, groups.get(record.turn.id, ()))

    def _example(self, record: Record, reason: Reason | None, group: tuple[int, ...]) -> Example:
        verdict = record.verdict
        hints = () if verdict is None else verdict.hints
        return Example(
            turn=record.turn,
            reason=reason,
            verdict=verdict,
            next_state=record.next_state,
            rl=record.rl,
            opd=record.opd,
            advantage=0.0 if verdict is None else self._advantage(verdict.reward, group),
            hinted=splice(record.turn.conversation, hints[0], self.placement).messages if hints else (),
        )

    def _reason(self, record: Record, excluded: Collection[str]) -> Reason | None:
        """Why the turn ended, or why no trainer may have it: an excluded session, or a secret."""
        if record.turn.session in excluded:
            return Reason.EXCLUDED
        read = record.turn.conversation.messages if self.with_ids else ()
        if any(self.redaction.in_message(message) for message in (record.turn.message, *read)):
            return Reason.HOLDS_SECRET
        return record.reason

    def _advantage(self, reward: int, group: tuple[int, ...]) -> float:
        """The advantage by the objective's baseline, without the running mean, which belongs to an update."""
        return BASELINES[self.objective.baseline].advantage(Rewarded(float(reward), group), 0.0)


def write(examples: Examples, format: str, out: BinaryIO) -> Exported:
    """Write the examples as JSON lines of a format."""
    rows, left_out = 0, Counter[str]()
    for row in FORMATS[format](examples):
        if isinstance(row, LeftOut):
            left_out[row.reason] += 1
        else:
            out.write(orjson.dumps(examples.redaction.redacted_json(row)) + b"\n")
            rows += 1
    return Exported(rows=rows, left_out=left_out)
