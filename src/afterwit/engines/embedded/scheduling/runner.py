"""A model runner: one set of weights, its slots, and the responses that are made with them."""

from __future__ import annotations

from torch import nn

from afterwit.core.errors import EngineError
from afterwit.engines.embedded.cache.kept import KeptRows
from afterwit.engines.embedded.forward import prefill
from afterwit.engines.embedded.scheduling.decoding import IN_PLACE, Decoding
from afterwit.engines.embedded.scheduling.outcome import Outcome, failure_of, outcomes
from afterwit.engines.embedded.scheduling.pace import Pace
from afterwit.engines.embedded.scheduling.prompts import Prompts
from afterwit.engines.embedded.scheduling.queue import RequestQueue
from afterwit.engines.embedded.scheduling.sequence import ResponseSequence, row_of


class ModelRunner:
    """Used from the worker's thread only.

    A sequence reads its prompt into a `Row`, in pieces between decode steps. Then it joins those that decode,
    one token per tick. When it ends, what it said goes behind the prompt in its row, which is kept for
    requests that begin like it.
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
        self._pace, self._kept = pace, kept
        self._prompts = Prompts(self, kept, context_length=context_length, pace=pace)
        self._decoding = Decoding(kept, slots=slots, context_length=context_length, in_place=in_place)

    @property
    def running(self) -> list[ResponseSequence]:
        """Every sequence that has a slot."""
        return [*self._decoding.sequences, *self._prompts.sequences]

    @property
    def decodes(self) -> bool:
        """Whether a response here is past its prompt."""
        return bool(self._decoding.sequences)

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
        for sequence, outcome in self._decoding.step(self.module, self.version):
            self._deliver(sequence, outcome)
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

    def _start(self, sequence: ResponseSequence) -> None:
        """Give a sequence a row. If its prompt was read for another, it decodes at once."""
        try:
            if not self._prompts.start(sequence, self.version):
                self._join(sequence)
        except Exception as error:  # no memory for a copy, for one
            self._deliver(sequence, failure_of(error))

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
            outcome = failure_of(error)
        if outcome is not None:
            self._deliver(sequence, outcome)

    def _read_piece(self, sequence: ResponseSequence, size: int) -> Outcome | None:
        ids = sequence.prompt[sequence.cached : sequence.cached + size]
        logits_1V = prefill(self.module, row_of(sequence), ids)
        sequence.read += size
        sequence.extend_cache(size, self.version)
        if sequence.uncached:
            return None
        if sequence.awaited is not None:
            sequence.read_last_again()
            self._join(sequence)
            return None
        self._join(sequence)
        return outcomes(logits_1V, [sequence.draw()])[0]

    def _join(self, sequence: ResponseSequence) -> None:
        """A sequence's prompt is read: it decodes from now on."""
        self._decoding.join(sequence)
        self._prompts.remove(sequence)

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
        if not (self._prompts.remove(sequence) or sequence in self._decoding.sequences):
            return
        if sequence in self._decoding.sequences:
            self._decoding.leave(sequence, failed=failed)
        if sequence.row is not None:
            if failed:
                self._kept.drop(sequence.row)
            self._kept.leave(sequence.row)
