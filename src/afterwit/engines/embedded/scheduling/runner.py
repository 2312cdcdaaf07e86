"""A model runner: one module, its slots, and the responses that are made with it."""

from __future__ import annotations

from torch import nn

from afterwit.core.errors import EngineError
from afterwit.engines.embedded.cache.kept import KeptRows
from afterwit.engines.embedded.forward import prefill
from afterwit.engines.embedded.scheduling.decoding import IN_PLACE, Decoding, Rows, alone
from afterwit.engines.embedded.scheduling.outcome import Outcome, failure_of, outcomes
from afterwit.engines.embedded.scheduling.pace import Pace
from afterwit.engines.embedded.scheduling.prompts import Prompts
from afterwit.engines.embedded.scheduling.queue import RequestQueue
from afterwit.engines.embedded.scheduling.sequence import ResponseSequence, row_of
from afterwit.engines.embedded.scheduling.served import Served
from afterwit.weights.rows import Factors


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
        rows: Rows = alone,
    ) -> None:
        """Prompts of more than `in_place` tokens stay in their row; None: its attention cannot do that.

        `rows` gives each row of a batch its adapter.
        """
        self.module = module
        self._rows = rows
        self._served = Served(version)
        self._own: dict[str, Served] = {}
        self.queue: RequestQueue[ResponseSequence] = RequestQueue(slots=slots, reserve=reserve)
        self._pace, self._kept = pace, kept
        self._prompts = Prompts(kept, context_length=context_length, pace=pace)
        self._decoding = Decoding(kept, slots=slots, context_length=context_length, in_place=in_place)

    @property
    def version(self) -> int:
        """Of the module's own weights."""
        return self._served.version

    def live(self, adapter: str) -> int | None:
        """The version of an adapter of somebody's own; None: there is none, and the module answers alone."""
        served = self._own.get(adapter)
        return None if served is None else served.version

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
        sequence.served = self._own.get(sequence.request.adapter, self._served)
        self.queue.add(sequence)

    def cancel(self, sequence: ResponseSequence) -> None:
        """Free its slot or its place in the queue, if it has one."""
        if not self.queue.remove(sequence):
            self._release(sequence)

    def swap(self, module: nn.Module, version: int) -> None:
        """Go on with other weights. New requests find nothing that the old ones have read."""
        self.module, self._served.version = module, version
        self._kept.forget(self._served)

    def put(self, adapter: str, factors: Factors | None, version: int) -> None:
        """Go on with other weights of one adapter. Its responses under way over the module alone end so."""
        if (served := self._own.get(adapter)) is None:
            self._own[adapter] = Served(version, factors)
            return
        served.version, served.factors = version, factors
        self._kept.forget(served)

    def take(self, adapter: str) -> None:
        """Have an adapter no more. Its responses under way end with it."""
        if (served := self._own.pop(adapter, None)) is not None:
            self._kept.forget(served)

    def tick(self, number: int, *, others_decode: bool = False) -> None:
        """One decode step of every response, then a limited piece of the prompts.

        `others_decode` says that another runner's responses wait for this one's work.
        """
        while sequence := self.queue.next(self.running):
            self._prompts.add(sequence)
        for sequence in self._prompts.startable():
            self._start(sequence)
        for sequence, outcome in self._decoding.step(self.module, self._rows):
            self._deliver(sequence, outcome)
        self._prefill(number, beside=others_decode or self.decodes)

    def fail(self, error: Exception) -> None:
        """End every response here with this error."""
        while sequence := self.queue.next(()):
            sequence.deliver(error)
        running = self.running
        for sequence in running:
            sequence.deliver(error)
        self._decoding.clear()
        self._prompts.clear()
        for served in {self._served, *self._own.values(), *(sequence.served for sequence in running)}:
            self._kept.forget(served)

    def _start(self, sequence: ResponseSequence) -> None:
        """Give a sequence a row. If its prompt was read for another, it decodes at once."""
        try:
            if not self._prompts.start(sequence):
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
        with self._rows([sequence.served.factors]):
            logits_1V = prefill(self.module, row_of(sequence), ids)
        sequence.read += size
        sequence.extend_cache(size)
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
        step = sequence.accept(outcome)
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
