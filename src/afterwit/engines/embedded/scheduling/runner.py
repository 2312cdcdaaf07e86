"""A model runner: one set of weights, its slots, and the responses that are made with them."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from torch import Tensor, nn

from afterwit.core.errors import EngineError
from afterwit.engines.embedded.cache.batch import Batch
from afterwit.engines.embedded.cache.common import common_prefix
from afterwit.engines.embedded.cache.kept import KeptRows
from afterwit.engines.embedded.cache.row import Row
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.sample import Draw, Drawn, draw
from afterwit.engines.embedded.scheduling.pace import Pace
from afterwit.engines.embedded.scheduling.prompts import LOST, Prompts
from afterwit.engines.embedded.scheduling.queue import RequestQueue
from afterwit.engines.embedded.scheduling.sequence import ResponseSequence

log = logging.getLogger(__name__)
IN_PLACE = 1024
"""Prompts of more tokens stay in their row while the response decodes, and responses share them. Shorter ones
are copied into the batch, where one call of the attention reads them all."""


class ModelRunner:
    """Used from the worker's thread only.

    A sequence reads its prompt into a `Row`, in pieces between decode steps. Then it joins those that decode,
    one token per tick, all in one forward: row r of `_batch` belongs to `_decoding[r]`. When it ends, what it
    said goes behind the prompt in its row, which is kept for requests that begin like it.
    """

    def __init__(
        self,
        module: nn.Module,
        version: int,
        *,
        slots: int,
        reserve: int,
        context_length: int,
        pace: Pace,
        kept: KeptRows,
        in_place: int | None = IN_PLACE,
    ) -> None:
        """Prompts of more than `in_place` tokens stay in their row; None: its attention cannot do that."""
        self.module = module
        self.version = version
        self.queue: RequestQueue[ResponseSequence] = RequestQueue(slots=slots, reserve=reserve)
        self._pace, self._kept, self._in_place = pace, kept, in_place
        self._prompts = Prompts(self, kept, context_length=context_length, pace=pace)
        self._decoding: list[ResponseSequence] = []
        self._batch = Batch(slots=slots, context_length=context_length)

    @property
    def running(self) -> list[ResponseSequence]:
        """Every sequence that has a slot."""
        return [*self._decoding, *self._prompts.sequences]

    @property
    def decodes(self) -> bool:
        """Whether a response here is past its prompt."""
        return bool(self._decoding)

    @property
    def idle(self) -> bool:
        return not (self.running or self.queue)

    @property
    def has_foreground(self) -> bool:
        """Whether a foreground request runs or waits here."""
        return self.queue.foreground_waits or any(not sequence.background for sequence in self.running)

    def add(self, sequence: ResponseSequence) -> None:
        self.queue.add(sequence)

    def cancel(self, sequence: ResponseSequence) -> None:
        """Free its slot or its place in the queue, if it has one."""
        if not self.queue.remove(sequence):
            self._release(sequence)

    def swap(self, module: nn.Module, version: int) -> None:
        """Go on with other weights. New requests find nothing that the old ones have read."""
        self.module, self.version = module, version
        self._kept.forget(self)

    def tick(self, number: int, *, others_decode: bool = False) -> None:
        """One decode step of every response, then a limited piece of the prompts.

        `others_decode` says that another runner's responses wait for this one's work.
        """
        while sequence := self.queue.next(self.running):
            self._prompts.add(sequence)
        for sequence in self._prompts.startable():
            self._start(sequence)
        self._decode()
        self._prefill(number, beside=others_decode or self.decodes)

    def fail(self, error: Exception) -> None:
        """End every response here with this error."""
        while sequence := self.queue.next(()):
            sequence.deliver(error)
        for sequence in self.running:
            sequence.deliver(error)
        self._decoding.clear()
        self._prompts.clear()
        self._kept.forget(self)
        self._batch.clear()

    def _start(self, sequence: ResponseSequence) -> None:
        """Give a sequence a row. If its prompt was read for another, it decodes at once."""
        try:
            if not self._prompts.start(sequence, self.version):
                self._join(sequence)
        except Exception as error:  # no memory for a copy, for one
            self._deliver(sequence, _failed(error))

    def _decode(self) -> None:
        sequences = list(self._decoding)
        if not sequences:
            return
        draws = [sequence.draw() for sequence in sequences]
        try:
            drawn = self._decode_rows(0, sequences, draws)
        except Exception:  # foreign code; each row is tried alone to find those that fail
            drawn = [self._decode_alone(row, sequence, draws[row]) for row, sequence in enumerate(sequences)]
        for sequence, outcome in zip(sequences, drawn, strict=True):
            self._deliver(sequence, outcome)

    def _decode_rows(
        self, first: int, sequences: Sequence[ResponseSequence], draws: Sequence[Draw]
    ) -> list[Outcome]:
        """The next id of rows first.., all in one forward."""
        last = [sequence.last_id for sequence in sequences]
        positions = [sequence.cached for sequence in sequences]
        beginnings = [sequence.beginning for sequence in sequences]
        drawn = _drawn(decode(self.module, self._batch, first, last, positions, beginnings), draws)
        for sequence in sequences:
            sequence.extend_cache(1, self.version)
        return drawn

    def _decode_alone(self, row: int, sequence: ResponseSequence, how: Draw) -> Outcome:
        """After a failed forward over all rows: only those that fail alone end with an error."""
        try:
            return self._decode_rows(row, [sequence], [how])[0]
        except Exception as error:  # a model is foreign code and may raise anything
            return _failed(error)

    def _prefill(self, number: int, *, beside: bool) -> None:
        """Read the prompts on, by at most `pace.chunk` of work in all.

        `beside` decoding responses, a prompt that had a piece then waits until decode steps have paid for it.
        """
        self._prompts.pay(beside=beside)
        room = float(self._pace.chunk)
        while piece := self._prompts.piece(number, room):
            sequence, size = piece
            work = self._pace.work(size, sequence.cached)
            room -= work
            sequence.debt = work if beside else 0.0
            self._read(sequence, size)

    def _read(self, sequence: ResponseSequence, size: int) -> None:
        """Read a piece of a prompt; once the prompt is read, draw the first id of the response."""
        try:
            outcome = self._read_piece(sequence, size)
        except Exception as error:  # a model is foreign code and may raise anything
            outcome = _failed(error)
        if outcome is not None:
            self._deliver(sequence, outcome)

    def _read_piece(self, sequence: ResponseSequence, size: int) -> Outcome | None:
        ids = sequence.prompt[sequence.cached : sequence.cached + size]
        logits_1V = prefill(self.module, _row(sequence), ids)
        sequence.read += size
        sequence.extend_cache(size, self.version)
        if sequence.uncached:
            return None
        self._join(sequence)
        return _drawn(logits_1V, [sequence.draw()])[0]

    def _join(self, sequence: ResponseSequence) -> None:
        """Give a sequence whose prompt is read the row behind those that decode."""
        last = len(sequence.prompt) - 1
        sequence.start = last if self._in_place is not None and last >= self._in_place else 0
        self._batch.put(len(self._decoding), _row(sequence).layers_between(sequence.start, sequence.cached))
        self._prompts.remove(sequence)
        self._decoding.append(sequence)

    def _deliver(self, sequence: ResponseSequence, outcome: Outcome) -> None:
        """Deliver what was drawn, or why nothing was; free the slot of a response that is over."""
        outcome = sequence.refusal or outcome
        if isinstance(outcome, EngineError):
            sequence.deliver(outcome)
            self._release(sequence, failed=True)
            return
        step = sequence.accept(outcome, self.version)
        sequence.deliver(step)
        if step.ended:
            self._release(sequence)

    def _release(self, sequence: ResponseSequence, *, failed: bool = False) -> None:
        """Free a sequence's slot, if it has one. Nothing of a failed one is found again."""
        if not (self._prompts.remove(sequence) or sequence in self._decoding):
            return
        if sequence in self._decoding:
            self._leave_batch(sequence, failed=failed)
        if sequence.row is not None:
            if failed:
                self._kept.drop(sequence.row)
            self._kept.leave(sequence.row)

    def _leave_batch(self, sequence: ResponseSequence, *, failed: bool) -> None:
        """The last row fills the hole, so that rows stay adjacent."""
        hole, last = self._decoding.index(sequence), len(self._decoding) - 1
        if failed:
            self._batch.wipe(hole)
        else:
            self._keep(sequence, hole)
        if hole != last:
            moved = self._decoding[hole] = self._decoding[last]
            self._batch.move(last, hole, moved.cached - moved.start)
        self._decoding.pop()
        if not self._decoding:
            self._batch.clear()

    def _keep(self, sequence: ResponseSequence, place: int) -> None:
        """Put the response behind the prompt in its row, unless more of another text is there."""
        row, text = _row(sequence), sequence.text
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


Outcome = Drawn | EngineError


def _drawn(logits_BV: Tensor, draws: Sequence[Draw]) -> list[Outcome]:
    """Each row's next id, or an error if its log-prob is not finite."""
    return [
        drawn if math.isfinite(drawn.logprob) else EngineError("The model's logits are not finite.")
        for drawn in draw(logits_BV, draws)
    ]


def _failed(error: Exception) -> EngineError:
    """The error as an EngineError, with its cause."""
    failure = EngineError(f"The model could not go on with this response: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _row(sequence: ResponseSequence) -> Row:
    """The row of a sequence that was started."""
    if sequence.row is None:
        raise ValueError("a sequence was read before it had a row")
    return sequence.row
