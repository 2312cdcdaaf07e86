"""Responses that are past their prompts: one token of each a step, all in one forward."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Generic, Protocol, TypeVar

from torch import nn

from afterwit.engines.embedded.cache import WORTH, Batch, KeptRows, Row, common_prefix
from afterwit.engines.embedded.forward import decode
from afterwit.engines.embedded.sequence import Outcome, ResponseSequence, failure_of, outcomes, row_of
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


LEAST = 8
"""Tokens of the smallest piece: each forward reads all keys and values, however few its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The limits on reading prompts."""

    chunk: int
    """Most work between two decode steps."""
    beside: int
    """Work that all prompts may cost per decode step, on average, while other responses decode."""
    attention_span: float = math.inf
    """Positions of context to attend to which costs as much as the rest of the forward, per token."""

    def work(self, tokens: int, context: int) -> float:
        """The work of a forward that reads this many tokens after `context` positions."""
        spans = context / self.attention_span
        return tokens + (tokens + LEAST) * spans

    def tokens(self, work: float, context: int) -> int:
        """How many tokens can be read after `context` positions with this much work; may be 0."""
        spans = context / self.attention_span
        return max(0, int((work - LEAST * spans) / (1 + spans)))


BACKGROUND_EVERY = 4
"""Waiting background work gets every 4th turn."""


class Queued(Protocol):
    @property
    def background(self) -> bool:
        """Whether it yields to requests that are not in the background."""


class Prefilling(Queued, Protocol):
    @property
    def read(self) -> int:
        """Prompt tokens read so far, without those that were found again."""


Q = TypeVar("Q", bound=Queued)
P = TypeVar("P", bound=Prefilling)


class RequestQueue(Generic[Q]):
    """Requests that wait for a slot: first come, first served, in two classes.

    `reserve` slots are never given to background requests.
    """

    def __init__(self, *, slots: int, reserve: int) -> None:
        self._slots = slots
        self._background_slots = max(1, slots - reserve)
        self._foreground: deque[Q] = deque()
        self._background: deque[Q] = deque()
        self._passed = 0
        """Foreground requests that started while a background one could have."""

    def __len__(self) -> int:
        return len(self._foreground) + len(self._background)

    @property
    def foreground_waits(self) -> bool:
        """Whether a foreground request waits."""
        return bool(self._foreground)

    def add(self, request: Q) -> None:
        (self._background if request.background else self._foreground).append(request)

    def remove(self, request: Q) -> bool:
        """Take a request out; False if it did not wait here."""
        queue = self._background if request.background else self._foreground
        if request not in queue:
            return False
        queue.remove(request)
        return True

    def next(self, running: Sequence[Q]) -> Q | None:
        """Take out the request that may start beside those running; None if no slot is free for one."""
        if len(running) >= self._slots:
            return None
        in_background = sum(other.background for other in running)
        admissible = bool(self._background) and in_background < self._background_slots
        if self._foreground and not (admissible and self._passed >= BACKGROUND_EVERY):
            self._passed += admissible
            return self._foreground.popleft()
        if not admissible:
            return None
        self._passed = 0
        return self._background.popleft()


def next_prefill(prompts: Sequence[P], tick: int) -> P:
    """The prompt to read on: the one of which least is read, so that a long one never holds a short one.

    Foreground prompts come first; in every BACKGROUND_EVERY-th tick, background prompts.
    """
    turn = tick % BACKGROUND_EVERY == 0
    preferred = [prompt for prompt in prompts if prompt.background == turn]
    return min(preferred or prompts, key=lambda prompt: prompt.read)


def runs_now(*, background_only: bool, foreground_elsewhere: bool, tick: int) -> bool:
    """Whether a runner steps. While another serves the foreground, background work alone steps rarely."""
    return not (background_only and foreground_elsewhere) or tick % BACKGROUND_EVERY == 0
