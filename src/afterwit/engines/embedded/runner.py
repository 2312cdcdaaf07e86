"""A runner: one set of weights, its slots, and the responses that are made with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from afterwit.core.errors import EngineError
from afterwit.engines.embedded.cache import SlotCache
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.queue import RequestQueue, next_prefill
from afterwit.engines.embedded.sample import Draw, draw
from afterwit.engines.embedded.sequence import ResponseSequence


class ModelRunner:
    """Used from the worker's thread only.

    Row r of the cache belongs to `running[r]`. The first rows extend by one token a tick, together; the last
    ones, those in `_prefilling`, still read their prompts, `chunk` tokens a tick. A row that ends is
    filled from behind, so that the extending rows stay adjacent and attention reads them in place.
    """

    def __init__(
        self, module: nn.Module, version: int, *, slots: int, reserve: int, context_length: int, chunk: int
    ) -> None:
        self.module = module
        self.version = version
        self.queue: RequestQueue[ResponseSequence] = RequestQueue(slots=slots, reserve=reserve)
        self.running: list[ResponseSequence] = []
        self.sampled = 0
        self._prefilling: list[ResponseSequence] = []
        self._chunk = chunk
        self._cache = SlotCache(slots=slots, context_length=context_length)

    @property
    def _decoding(self) -> int:
        return len(self.running) - len(self._prefilling)

    @property
    def idle(self) -> bool:
        return not self.running and not self.queue

    @property
    def has_foreground(self) -> bool:
        """Whether a person's request is running or waiting here."""
        return self.queue.foreground_waits or any(not sequence.background for sequence in self.running)

    def add(self, sequence: ResponseSequence) -> None:
        self.queue.add(sequence)

    def cancel(self, sequence: ResponseSequence) -> None:
        """Free its slot or its place in line, if it has one."""
        if not self.queue.remove(sequence) and sequence in self.running:
            self._release(sequence)

    def tick(self, number: int) -> None:
        """One decode step for every response that is being said, then one chunk of what waits to be read."""
        while sequence := self.queue.next(self.running):
            self.running.append(sequence)
            self._prefilling.append(sequence)
        self._decode()
        self._prefill(number)

    def fail(self, error: Exception) -> None:
        """End everything here with this error."""
        while sequence := self.queue.next(()):
            sequence.deliver(error)
        for sequence in self.running:
            sequence.deliver(error)
        self.running.clear()
        self._prefilling.clear()
        self._cache.clear()

    def _decode(self) -> None:
        sequences = self.running[: self._decoding]
        if not sequences:
            return
        draws = [sequence.draw() for sequence in sequences]
        try:
            drawn = self._decode_rows(0, sequences, draws)
        except Exception:
            drawn = [self._decode_alone(row, sequence, draws[row]) for row, sequence in enumerate(sequences)]
        for sequence, outcome in zip(sequences, drawn, strict=True):
            self._deliver(sequence, outcome)

    def _decode_rows(
        self, first: int, sequences: Sequence[ResponseSequence], draws: Sequence[Draw]
    ) -> list[Drawn]:
        """The next id of rows first.., all in one forward."""
        last = [sequence.response_ids[-1] for sequence in sequences]
        logits_BV = decode(self.module, self._cache, first, last, [sequence.cached for sequence in sequences])
        drawn = _drawn(logits_BV, draws)
        for sequence in sequences:
            sequence.cached += 1
        return drawn

    def _decode_alone(self, row: int, sequence: ResponseSequence, how: Draw) -> Drawn:
        """After a failed forward over all rows: only those that fail alone are at fault."""
        try:
            return self._decode_rows(row, [sequence], [how])[0]
        except Exception as error:
            return _failed(error)

    def _prefill(self, number: int) -> None:
        room = self._chunk
        while self._prefilling and room > 0:
            sequence = next_prefill(self._prefilling, number)
            size = min(sequence.uncached, room)
            room -= size
            try:
                outcome = self._prefill_part(sequence, size)
            except Exception as error:
                outcome = _failed(error)
            if outcome is not None:
                self._deliver(sequence, outcome)

    def _prefill_part(self, sequence: ResponseSequence, size: int) -> Drawn | None:
        """Read so many more tokens of its prompt; its first drawn id once the prompt is read."""
        row = self.running.index(sequence)
        ids = sequence.request.prompt_ids[sequence.cached : sequence.cached + size]
        logits_1V = prefill(self.module, self._cache, row, ids, sequence.cached)
        sequence.cached += len(ids)
        if sequence.uncached:
            return None
        self._swap(row, self._decoding)
        self._prefilling.remove(sequence)
        return _drawn(logits_1V, [sequence.draw()])[0]

    def _deliver(self, sequence: ResponseSequence, outcome: Drawn) -> None:
        """Deliver what was drawn, or why nothing was; free the slot of a response that is over."""
        if isinstance(outcome, EngineError):
            sequence.deliver(outcome)
            self._release(sequence)
            return
        step = sequence.accept(*outcome, self.version)
        self.sampled += 1
        sequence.deliver(step)
        if step.ended:
            self._release(sequence)

    def _release(self, sequence: ResponseSequence) -> None:
        hole, last = self.running.index(sequence), len(self.running) - 1
        if sequence in self._prefilling:
            self._prefilling.remove(sequence)
        else:
            self._move(self._decoding - 1, hole)
            hole = self._decoding - 1
        self._move(last, hole)
        self.running.pop()
        if not self.running:
            self._cache.clear()

    def _move(self, source: int, target: int) -> None:
        if source != target:
            self._cache.move(source, target, self.running[source].cached)
            self.running[target] = self.running[source]

    def _swap(self, one: int, other: int) -> None:
        if one != other:
            rows = self.running
            self._cache.swap(one, other, max(rows[one].cached, rows[other].cached))
            rows[one], rows[other] = rows[other], rows[one]


Drawn = tuple[int, float] | EngineError


def _drawn(logits_BV: Tensor, draws: Sequence[Draw]) -> list[Drawn]:
    """Each row's (id, log-prob), or an error where its log-prob is not finite."""
    return [
        (token, logprob) if math.isfinite(logprob) else EngineError("The model's logits are not finite.")
        for token, logprob in zip(*draw(logits_BV, draws), strict=True)
    ]


def _failed(error: Exception) -> EngineError:
    """The error as one of ours, its cause kept."""
    failure = EngineError(f"The model could not go on with this response: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
