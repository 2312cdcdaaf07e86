"""A model runner: one set of weights, its slots, and the responses that are made with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from afterwit.core.errors import EngineError
from afterwit.engines.embedded.cache.slots import SlotCache
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.scheduling.pace import LEAST, Pace
from afterwit.engines.embedded.scheduling.queue import RequestQueue, next_prefill
from afterwit.engines.embedded.sample import Draw, draw
from afterwit.engines.embedded.scheduling.sequence import ResponseSequence


class ModelRunner:
    """Used from the worker's thread only.

    A sequence reads its prompt into a cache of its own, in pieces between decode steps. Then it joins those
    that decode, one token per tick, all in one forward: row r of `_cache` belongs to `_decoding[r]`.
    """

    def __init__(
        self, module: nn.Module, version: int, *, slots: int, reserve: int, context_length: int, pace: Pace
    ) -> None:
        self.module = module
        self.version = version
        self.queue: RequestQueue[ResponseSequence] = RequestQueue(slots=slots, reserve=reserve)
        self._slots, self._context_length, self._pace = slots, context_length, pace
        self._decoding: list[ResponseSequence] = []
        self._cache = self._new_cache()
        self._prefilling: dict[ResponseSequence, SlotCache] = {}

    @property
    def running(self) -> list[ResponseSequence]:
        """Every sequence that has a slot."""
        return [*self._decoding, *self._prefilling]

    @property
    def decodes(self) -> bool:
        """Whether a response here is past its prompt."""
        return bool(self._decoding)

    @property
    def idle(self) -> bool:
        return not (self._decoding or self._prefilling or self.queue)

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

    def tick(self, number: int, *, others_decode: bool = False) -> None:
        """One decode step of every response, then a limited piece of the prompts.

        `others_decode` says that another runner's responses wait for this one's work.
        """
        while sequence := self.queue.next(self.running):
            self._prefilling[sequence] = self._new_cache()
        self._decode()
        self._prefill(number, beside=others_decode or self.decodes)

    def fail(self, error: Exception) -> None:
        """End every response here with this error."""
        while sequence := self.queue.next(()):
            sequence.deliver(error)
        for sequence in self.running:
            sequence.deliver(error)
        self._decoding.clear()
        self._prefilling.clear()
        self._cache.clear()

    def _new_cache(self) -> SlotCache:
        return SlotCache(slots=self._slots, context_length=self._context_length)

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
    ) -> list[Drawn]:
        """The next id of rows first.., all in one forward."""
        last = [sequence.response_ids[-1] for sequence in sequences]
        positions = [sequence.cached for sequence in sequences]
        drawn = _drawn(decode(self.module, self._cache, first, last, positions), draws)
        for sequence in sequences:
            sequence.extend_cache(1, self.version)
        return drawn

    def _decode_alone(self, row: int, sequence: ResponseSequence, how: Draw) -> Drawn:
        """After a failed forward over all rows: only those that fail alone end with an error."""
        try:
            return self._decode_rows(row, [sequence], [how])[0]
        except Exception as error:  # a model is foreign code and may raise anything
            return _failed(error)

    def _prefill(self, number: int, *, beside: bool) -> None:
        """Read the prompts on, by at most `pace.chunk` of work in all.

        `beside` decoding responses, a prompt that had a piece then waits until decode steps have paid for it.
        """
        for sequence in self._prefilling:
            sequence.debt = max(0.0, sequence.debt - self._pace.beside) if beside else 0.0
        room = float(self._pace.chunk)
        while room > 0 and (ready := [sequence for sequence in self._prefilling if not sequence.debt]):
            sequence = next_prefill(ready, number)
            size = self._piece(sequence, room)
            if not size:
                return
            work = self._pace.work(size, sequence.cached)
            room -= work
            sequence.debt = work if beside else 0.0
            self._read(sequence, size)

    def _piece(self, sequence: ResponseSequence, room: float) -> int:
        """Prompt tokens to read next; 0 if what is left of this tick's work is too little for a piece."""
        least = min(LEAST, sequence.uncached)
        size = min(self._pace.tokens(room, sequence.cached), sequence.uncached)
        if size >= least:
            return size
        return least if room == self._pace.chunk else 0

    def _read(self, sequence: ResponseSequence, size: int) -> None:
        """Read a piece of a prompt; once the prompt is read, draw the first id of the response."""
        try:
            outcome = self._read_piece(sequence, size)
        except Exception as error:  # a model is foreign code and may raise anything
            outcome = _failed(error)
        if outcome is not None:
            self._deliver(sequence, outcome)

    def _read_piece(self, sequence: ResponseSequence, size: int) -> Drawn | None:
        cache, start = self._prefilling[sequence], sequence.cached
        ids = sequence.request.prompt_ids[start : start + size]
        logits_1V = prefill(self.module, cache, 0, ids, start)
        sequence.extend_cache(size, self.version)
        if sequence.uncached:
            return None
        self._join(sequence, cache)
        return _drawn(logits_1V, [sequence.draw()])[0]

    def _join(self, sequence: ResponseSequence, cache: SlotCache) -> None:
        """Give a sequence whose prompt is read the row behind those that decode."""
        if self._decoding:
            self._cache.take(len(self._decoding), cache, sequence.cached)
        else:
            self._cache = cache
        del self._prefilling[sequence]
        self._decoding.append(sequence)

    def _deliver(self, sequence: ResponseSequence, outcome: Drawn) -> None:
        """Deliver what was drawn, or why nothing was; free the slot of a response that is over."""
        if isinstance(outcome, EngineError):
            sequence.deliver(outcome)
            self._release(sequence)
            return
        step = sequence.accept(*outcome, self.version)
        sequence.deliver(step)
        if step.ended:
            self._release(sequence)

    def _release(self, sequence: ResponseSequence) -> None:
        """Free a sequence's slot, if it has one. The last row fills the hole, so that rows stay adjacent."""
        if self._prefilling.pop(sequence, None) or sequence not in self._decoding:
            return
        hole, last = self._decoding.index(sequence), len(self._decoding) - 1
        if hole != last:
            self._cache.move(last, hole, self._decoding[last].cached)
            self._decoding[hole] = self._decoding[last]
        self._decoding.pop()
        if not self._decoding:
            self._cache.clear()


Drawn = tuple[int, float] | EngineError


def _drawn(logits_BV: Tensor, draws: Sequence[Draw]) -> list[Drawn]:
    """Each row's (id, log-prob), or an error if its log-prob is not finite."""
    return [
        (token, logprob) if math.isfinite(logprob) else EngineError("The model's logits are not finite.")
        for token, logprob in zip(*draw(logits_BV, draws), strict=True)
    ]


def _failed(error: Exception) -> EngineError:
    """The error as an EngineError, with its cause."""
    failure = EngineError(f"The model could not go on with this response: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
