"""Prompts that are being read: where each goes on from, and which is read on."""

from __future__ import annotations

from collections.abc import Iterator

from afterwit.engines.embedded.cache.common import common_prefix
from afterwit.engines.embedded.cache.kept import WORTH, KeptRows
from afterwit.engines.embedded.cache.row import Row
from afterwit.engines.embedded.scheduling.pace import LEAST, Pace
from afterwit.engines.embedded.scheduling.queue import next_prefill
from afterwit.engines.embedded.scheduling.sequence import ResponseSequence

LOST = 4
"""A row is taken over, rather than copied, if what it then loses is at most a fourth of what is reused."""


class Prompts:
    """Used from the worker's thread only.

    A prompt goes on from the row that holds most of its beginning: over the row itself if it holds all but
    the last token, else in the row or in a copy. If a prompt that is being read now begins like it, it waits
    until the common beginning is read.
    """

    def __init__(self, kept: KeptRows, *, context_length: int, pace: Pace) -> None:
        self._kept, self._context_length, self._pace = kept, context_length, pace
        self._reading: list[ResponseSequence] = []
        self._waiting: dict[ResponseSequence, tuple[ResponseSequence, int] | None] = {}
        """Those without a row: which prompt each waits for, and until how many of its tokens are read."""

    @property
    def sequences(self) -> list[ResponseSequence]:
        """All whose prompt is not read."""
        return [*self._reading, *self._waiting]

    def add(self, sequence: ResponseSequence) -> None:
        self._waiting[sequence] = None

    def remove(self, sequence: ResponseSequence) -> bool:
        """False if it was not here."""
        if sequence in self._reading:
            self._reading.remove(sequence)
            return True
        return self._waiting.pop(sequence, self) is not self

    def clear(self) -> None:
        self._reading.clear()
        self._waiting.clear()

    def startable(self) -> Iterator[ResponseSequence]:
        """Those that need not wait for another prompt, each in the light of those started before it."""
        for sequence in list(self._waiting):
            if not self._waits(sequence):
                yield sequence

    def start(self, sequence: ResponseSequence) -> bool:
        """Give it a row. Whether its prompt is to be read: False if the row has all but the last token."""
        usable = sequence.prompt[:-1]
        found = self._kept.holding(sequence.served, usable)
        if found is None:
            self._kept.make_room(len(sequence.prompt))
            row = Row(context_length=self._context_length, coming=len(sequence.prompt))
            self._kept.add(sequence.served, row)
        else:
            whole = found.tokens == len(usable)
            row = found.row if whole else self._going_on(sequence, found.row, found.tokens)
            sequence.reuse(found.tokens)
        self._kept.use(row)
        sequence.row = row
        del self._waiting[sequence]
        self._reading.append(sequence)
        return sequence.uncached > 1

    def pay(self, *, beside: bool) -> None:
        """A tick has passed. `beside` decoding responses, prompts pay back together what they cost."""
        owing = sum(sequence.debt > 0 for sequence in self._reading)
        for sequence in self._reading:
            sequence.debt = max(0.0, sequence.debt - self._pace.beside / owing) if beside and owing else 0.0

    def piece(self, number: int, room: float) -> tuple[ResponseSequence, int] | None:
        """The prompt to read on in this tick, and how many of its tokens; None if too little work is left."""
        ready = [sequence for sequence in self._reading if not sequence.debt]
        if room <= 0 or not ready:
            return None
        sequence = next_prefill(ready, number)
        least = min(LEAST, sequence.uncached)
        size = min(self._pace.tokens(room, sequence.cached), sequence.uncached)
        if size >= least:
            return sequence, size
        return (sequence, least) if room == self._pace.chunk else None

    def _waits(self, sequence: ResponseSequence) -> bool:
        awaited = self._waiting[sequence]
        if awaited is not None and self._still_reads(*awaited):
            return True
        awaited = self._waiting[sequence] = self._awaited(sequence)
        return awaited is not None

    def _still_reads(self, other: ResponseSequence, tokens: int) -> bool:
        return other in self._reading and other.row in self._kept and other.cached < tokens

    def _awaited(self, sequence: ResponseSequence) -> tuple[ResponseSequence, int] | None:
        """The prompt being read that will have most of this one's beginning, if no row has as much."""
        usable = sequence.prompt[:-1]
        found = self._kept.holding(sequence.served, usable)
        held = found.tokens if found else 0
        others = [
            (other, common_prefix(other.prompt, usable))
            for other in self._reading
            if other.served is sequence.served
            and other.row in self._kept
            and (sequence.background or not other.background)
        ]
        other, tokens = max(others, key=lambda one: one[1], default=(sequence, 0))
        return (other, tokens) if tokens - held >= WORTH and self._still_reads(other, tokens) else None

    def _going_on(self, sequence: ResponseSequence, row: Row, tokens: int) -> Row:
        """The row itself, cut, if nobody needs what it then loses; else a copy of its beginning."""
        length, lost = len(sequence.prompt), len(row.ids) - tokens
        if not row.users and (LOST * lost <= tokens or not self._kept.has_room(len(row.ids) + length)):
            row.cut(tokens)
            row.coming = length
            return row
        self._kept.use(row)
        try:
            self._kept.make_room(length)
            copy = row.first(tokens, coming=length)
        finally:
            self._kept.leave(row)
        self._kept.add(sequence.served, copy)
        return copy
