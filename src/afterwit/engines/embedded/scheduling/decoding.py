"""Responses that are past their prompts: one token of each a step, all in one forward."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, nullcontext
from itertools import chain

from torch import nn

from afterwit.engines.embedded.cache.batch import Batch
from afterwit.engines.embedded.cache.common import common_prefix
from afterwit.engines.embedded.cache.kept import KeptRows
from afterwit.engines.embedded.forward import decode
from afterwit.engines.embedded.scheduling.outcome import Outcome, failure_of, outcomes
from afterwit.engines.embedded.scheduling.prompts import LOST
from afterwit.engines.embedded.scheduling.sequence import ResponseSequence, row_of
from afterwit.weights.rows import Factors

log = logging.getLogger(__name__)
LATE_S = 0.05
"""Seconds that a step waits for masks: what one client's schema takes to follow must not stop the others."""
IN_PLACE = 1024
"""Prompts of more tokens stay in their row while the response decodes, and responses share them. Shorter ones
are copied into the batch, where one call of the attention reads them all."""

Drawing = tuple[ResponseSequence, Outcome]
"""A response and what came of its next id."""


Rows = Callable[[Sequence[Factors | None]], AbstractContextManager[None]]
"""Within the body, each row of a batch is computed with the adapter at its place."""


def alone(adapters: Sequence[Factors | None]) -> AbstractContextManager[None]:
    """`Rows` of a module that takes no adapters."""
    return nullcontext()


class Decoding:
    """Used from the worker's thread only. Row r of the batch belongs to `sequences[r]`."""

    def __init__(self, kept: KeptRows, *, slots: int, context_length: int, in_place: int | None) -> None:
        self._kept, self._in_place = kept, in_place
        self.sequences: list[ResponseSequence] = []
        self._batch = Batch(slots=slots, context_length=context_length)

    def join(self, sequence: ResponseSequence) -> None:
        """Give a sequence whose prompt is read the row behind the others."""
        last = len(sequence.prompt) - 1
        sequence.start = last if self._in_place is not None and last >= self._in_place else 0
        layers = row_of(sequence).layers_between(sequence.start, sequence.cached)
        self._batch.put(len(self.sequences), layers)
        self.sequences.append(sequence)

    def step(self, module: nn.Module, rows: Rows = alone) -> list[Drawing]:
        """What came of the next token of each response, by these weights; `rows` gives each its adapter.

        A response whose mask is late is left out, and its position is read again in the next step.
        """
        sequences = list(self.sequences)
        if not sequences:
            return []
        try:
            return self._decode_rows(module, rows, 0, sequences)
        except Exception:  # foreign code; each row is tried alone to find those that fail
            each = [self._decode_alone(module, rows, row, one) for row, one in enumerate(sequences)]
            return list(chain.from_iterable(each))

    def leave(self, sequence: ResponseSequence, *, failed: bool) -> None:
        """A response is over: keep what it said. The last row fills the hole, so that rows stay adjacent."""
        hole, last = self.sequences.index(sequence), len(self.sequences) - 1
        if failed:
            self._batch.wipe(hole)
        else:
            self._keep(sequence, hole)
        if hole != last:
            moved = self.sequences[hole] = self.sequences[last]
            self._batch.move(last, hole, moved.cached - moved.start)
        self.sequences.pop()
        if not self.sequences:
            self._batch.clear()

    def clear(self) -> None:
        self.sequences.clear()
        self._batch.clear()

    def _decode_rows(
        self,
        module: nn.Module,
        rows: Rows,
        first: int,
        sequences: Sequence[ResponseSequence],
    ) -> list[Drawing]:
        """The next id of rows first.., all in one forward."""
        last = [sequence.last_id for sequence in sequences]
        positions = [sequence.cached for sequence in sequences]
        beginnings = [sequence.beginning for sequence in sequences]
        with rows([sequence.served.factors for sequence in sequences]):
            logits_BV = decode(module, self._batch, first, last, positions, beginnings)
        ready = _in_time(sequences)
        drawing = [sequences[row] for row in ready]
        drawn = outcomes(
            logits_BV if len(ready) == len(sequences) else logits_BV[ready], [one.draw() for one in drawing]
        )
        for sequence in drawing:
            sequence.extend_cache(1)
        return list(zip(drawing, drawn, strict=True))

    def _decode_alone(
        self, module: nn.Module, rows: Rows, row: int, sequence: ResponseSequence
    ) -> list[Drawing]:
        """After a failed forward over all rows: only those that fail alone end with an error."""
        try:
            return self._decode_rows(module, rows, row, [sequence])
        except Exception as error:  # a model is foreign code and may raise anything
            return [(sequence, failure_of(error))]

    def _keep(self, sequence: ResponseSequence, place: int) -> None:
        """Put the response behind the prompt in its row, unless more of another text is there."""
        row, text = row_of(sequence), sequence.text
        same = common_prefix(row.ids, text)
        lost = len(row.ids) - same
        if row not in self._kept or (lost and (row.users > 1 or LOST * lost > same)):
            return
        row.cut(same)
        start, end = same - sequence.start, len(text) - sequence.start
        try:
            row.extend(self._batch.taken(place, start, end), text[same:])
        except Exception:  # no memory for more: what was there stays
            log.exception("a response's keys and values could not be kept")


def _in_time(sequences: Sequence[ResponseSequence]) -> list[int]:
    """The rows whose next id can be drawn: all, unless masks are late."""
    awaited = {row: mask for row, one in enumerate(sequences) if (mask := one.awaited) is not None}
    if awaited:
        wait(awaited.values(), LATE_S)
    return [row for row in range(len(sequences)) if row not in awaited or awaited[row].done()]
