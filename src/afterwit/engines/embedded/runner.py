"""A lane: one set of weights, its slots, and the responses that are made with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from afterwit.core.errors import EngineError
from afterwit.engines.embedded.cache import SlotCache
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.queue import Line, reads_next
from afterwit.engines.embedded.sample import Draw, draw
from afterwit.engines.embedded.sequence import Stream


class Lane:
    """Used from the worker's thread only.

    Row r of the cache belongs to `running[r]`. The first rows extend by one token a tick, together; the last
    ones, those in `_reading`, still read their prompts, `chunk` tokens a tick. A row that ends is
    filled from behind, so that the extending rows stay adjacent and attention reads them in place.
    """

    def __init__(
        self, module: nn.Module, version: int, *, slots: int, reserve: int, context_length: int, chunk: int
    ) -> None:
        self.module = module
        self.version = version
        self.line: Line[Stream] = Line(slots=slots, reserve=reserve)
        self.running: list[Stream] = []
        self.sampled = 0
        self._reading: list[Stream] = []
        self._chunk = chunk
        self._cache = SlotCache(slots=slots, context_length=context_length)

    @property
    def _extending(self) -> int:
        return len(self.running) - len(self._reading)

    @property
    def idle(self) -> bool:
        return not self.running and not self.line

    @property
    def serves_people(self) -> bool:
        """Whether a person's request is running or waiting here."""
        return self.line.people or any(not stream.background for stream in self.running)

    def add(self, stream: Stream) -> None:
        self.line.add(stream)

    def cancel(self, stream: Stream) -> None:
        """Free its slot or its place in line, if it has one."""
        if not self.line.remove(stream) and stream in self.running:
            self._leave(stream)

    def tick(self, number: int) -> None:
        """One decode step for every response that is being said, then one chunk of what waits to be read."""
        while stream := self.line.next(self.running):
            self.running.append(stream)
            self._reading.append(stream)
        self._decode()
        self._read(number)

    def fail(self, error: Exception) -> None:
        """End everything here with this error."""
        while stream := self.line.next(()):
            stream.deliver(error)
        for stream in self.running:
            stream.deliver(error)
        self.running.clear()
        self._reading.clear()
        self._cache.clear()

    def _decode(self) -> None:
        streams = self.running[: self._extending]
        if not streams:
            return
        draws = [stream.draw() for stream in streams]
        try:
            drawn = self._extend(0, streams, draws)
        except Exception:
            drawn = [self._extend_alone(row, stream, draws[row]) for row, stream in enumerate(streams)]
        for stream, outcome in zip(streams, drawn, strict=True):
            self._hand(stream, outcome)

    def _extend(self, first: int, streams: Sequence[Stream], draws: Sequence[Draw]) -> list[Drawn]:
        """The next id of rows first.., all in one forward."""
        last = [stream.made[-1] for stream in streams]
        logits_BV = decode(self.module, self._cache, first, last, [stream.fed for stream in streams])
        drawn = _drawn(logits_BV, draws)
        for stream in streams:
            stream.fed += 1
        return drawn

    def _extend_alone(self, row: int, stream: Stream, how: Draw) -> Drawn:
        """After a failed forward over all rows: only those that fail alone are at fault."""
        try:
            return self._extend(row, [stream], [how])[0]
        except Exception as error:
            return _failed(error)

    def _read(self, number: int) -> None:
        room = self._chunk
        while self._reading and room > 0:
            stream = reads_next(self._reading, number)
            size = min(stream.unread, room)
            room -= size
            try:
                outcome = self._read_part(stream, size)
            except Exception as error:
                outcome = _failed(error)
            if outcome is not None:
                self._hand(stream, outcome)

    def _read_part(self, stream: Stream, size: int) -> Drawn | None:
        """Read so many more tokens of its prompt; its first drawn id once the prompt is read."""
        row = self.running.index(stream)
        ids = stream.request.prompt_ids[stream.fed : stream.fed + size]
        logits_1V = prefill(self.module, self._cache, row, ids, stream.fed)
        stream.fed += len(ids)
        if stream.unread:
            return None
        self._swap(row, self._extending)
        self._reading.remove(stream)
        return _drawn(logits_1V, [stream.draw()])[0]

    def _hand(self, stream: Stream, outcome: Drawn) -> None:
        """Deliver what was drawn, or why nothing was; free the slot of a response that is over."""
        if isinstance(outcome, EngineError):
            stream.deliver(outcome)
            self._leave(stream)
            return
        step = stream.accept(*outcome, self.version)
        self.sampled += 1
        stream.deliver(step)
        if step.ended:
            self._leave(stream)

    def _leave(self, stream: Stream) -> None:
        hole, last = self.running.index(stream), len(self.running) - 1
        if stream in self._reading:
            self._reading.remove(stream)
        else:
            self._move(self._extending - 1, hole)
            hole = self._extending - 1
        self._move(last, hole)
        self.running.pop()
        if not self.running:
            self._cache.clear()

    def _move(self, source: int, target: int) -> None:
        if source != target:
            self._cache.move(source, target, self.running[source].fed)
            self.running[target] = self.running[source]

    def _swap(self, one: int, other: int) -> None:
        if one != other:
            rows = self.running
            self._cache.swap(one, other, max(rows[one].fed, rows[other].fed))
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
