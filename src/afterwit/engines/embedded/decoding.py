"""The embedded engine's schedule: which request starts, which prompt is read on, and the decode step."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain

from torch import nn

from afterwit.engines.embedded.cache import WORTH, Batch, PrefixCache, Row, common_prefix
from afterwit.engines.embedded.forward import decode
from afterwit.engines.embedded.sequence import Outcome, ResponseSequence, failure_of, outcomes, row_of
from afterwit.weights.lora import Factors

LATE_S = 0.05
"""Seconds that a step waits for masks: a client's slow schema must not stop the others."""
IN_PLACE = 1024
"""Longer prompts stay in their row while the response decodes, and responses share them. Shorter ones are
copied into the batch, where one call of the attention reads them all."""
LOST = 4
"""A row is taken over, rather than copied, if it then loses at most a fourth of what is reused."""
LEAST = 8
"""Tokens of the smallest piece: each forward reads all keys and values, however few its tokens."""
BACKGROUND_EVERY = 4
"""Waiting background work gets every 4th turn."""

Rows = Callable[[Sequence[Factors | None]], AbstractContextManager[None]]
"""Within the body, each row of a batch is computed with the adapter at its index."""

log = logging.getLogger(__name__)


def no_adapters(adapters: Sequence[Factors | None]) -> AbstractContextManager[None]:
    """`Rows` of a module without adapters."""
    return nullcontext()


class RequestQueue:
    """Requests that wait for a slot: first come, first served, in two classes.

    `reserve` slots are never given to background requests.
    """

    def __init__(self, *, slots: int, reserve: int) -> None:
        self._slots = slots
        self._background_slots = max(1, slots - reserve)
        self._foreground: deque[ResponseSequence] = deque()
        self._background: deque[ResponseSequence] = deque()
        self._passed = 0
        """Foreground requests that started while a background one could have."""

    def __len__(self) -> int:
        return len(self._foreground) + len(self._background)

    @property
    def foreground_waits(self) -> bool:
        return bool(self._foreground)

    def add(self, request: ResponseSequence) -> None:
        (self._background if request.background else self._foreground).append(request)

    def remove(self, request: ResponseSequence) -> bool:
        """Take a request out; False if it did not wait here."""
        queue = self._background if request.background else self._foreground
        if request not in queue:
            return False
        queue.remove(request)
        return True

    def next(self, running: Sequence[ResponseSequence]) -> ResponseSequence | None:
        """Take out the request that may start next to the running ones; None if no slot is free for one."""
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


def runs_now(*, background_only: bool, foreground_elsewhere: bool, tick: int) -> bool:
    """Whether a runner steps. While another serves the foreground, background work alone steps rarely."""
    return not (background_only and foreground_elsewhere) or tick % BACKGROUND_EVERY == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillBudget:
    """The limits on reading prompts, in work: one unit is a token at an empty context."""

    chunk: int
    """Most work between two decode steps."""
    per_step: int
    """Work that all prompts may cost per decode step, on average, while other responses decode."""
    attention_span: float = math.inf
    """Positions of context whose attention costs as much as the rest of the forward, per token."""

    def work(self, tokens: int, context: int) -> float:
        """The work of a forward that reads this many tokens after `context` positions."""
        spans = context / self.attention_span
        return tokens + (tokens + LEAST) * spans

    def tokens(self, work: float, context: int) -> int:
        """The number of tokens that can be read after `context` positions with this much work; may be 0."""
        spans = context / self.attention_span
        return max(0, int((work - LEAST * spans) / (1 + spans)))


def next_prefill(prompts: Sequence[ResponseSequence], tick: int) -> ResponseSequence:
    """The prompt to read on: the one of which least is read, so that a long one never holds a short one.

    Foreground prompts come first; in every BACKGROUND_EVERY-th tick, background prompts.
    """
    turn = tick % BACKGROUND_EVERY == 0
    preferred = [prompt for prompt in prompts if prompt.background == turn]
    return min(preferred or prompts, key=lambda prompt: prompt.read)


class Prompts:
    """Sequences whose prompt is not read yet. Used from the worker's thread only.

    A prompt goes on from the row with most of its beginning: in the row itself if it holds all but the last
    token, else in the row or in a copy. If another prompt with the same beginning is being read, it waits
    until the common part is read.
    """

    def __init__(self, cache: PrefixCache, *, context_length: int, budget: PrefillBudget) -> None:
        self._cache, self._context_length, self._budget = cache, context_length, budget
        self._reading: list[ResponseSequence] = []
        self._waiting: dict[ResponseSequence, tuple[ResponseSequence, int] | None] = {}
        """Those without a row: the prompt that each waits for, and until how many of its tokens are read."""

    @property
    def sequences(self) -> list[ResponseSequence]:
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
        """Those that need not wait for another prompt, including prompts started earlier in the iteration."""
        for sequence in list(self._waiting):
            if not self._waits(sequence):
                yield sequence

    def start(self, sequence: ResponseSequence) -> bool:
        """Give it a row. Whether its prompt is to be read: False if the row has all but the last token."""
        usable = sequence.prompt[:-1]
        found = self._cache.find(sequence.served, usable)
        if found is None:
            self._cache.make_room(len(sequence.prompt))
            row = Row(context_length=self._context_length, coming=len(sequence.prompt))
            self._cache.add(sequence.served, row)
        else:
            whole = found.tokens == len(usable)
            row = found.row if whole else self._continued(sequence, found.row, found.tokens)
            sequence.reuse(found.tokens)
        self._cache.use(row)
        sequence.row = row
        del self._waiting[sequence]
        self._reading.append(sequence)
        return sequence.uncached > 1

    def pay(self, *, decoding: bool) -> None:
        """A tick has passed. If responses are decoding, prompts pay back together what they owe."""
        owing = sum(sequence.owed > 0 for sequence in self._reading)
        for sequence in self._reading:
            sequence.owed = (
                max(0.0, sequence.owed - self._budget.per_step / owing) if decoding and owing else 0.0
            )

    def piece(self, number: int, room: float) -> tuple[ResponseSequence, int] | None:
        """The prompt to read on in this tick, and how many of its tokens; None if too little work is left."""
        ready = [sequence for sequence in self._reading if not sequence.owed]
        if room <= 0 or not ready:
            return None
        sequence = next_prefill(ready, number)
        least = min(LEAST, sequence.uncached)
        size = min(self._budget.tokens(room, sequence.cached), sequence.uncached)
        if size >= least:
            return sequence, size
        return (sequence, least) if room == self._budget.chunk else None

    def _waits(self, sequence: ResponseSequence) -> bool:
        awaited = self._waiting[sequence]
        if awaited is not None and self._still_reads(*awaited):
            return True
        awaited = self._waiting[sequence] = self._awaited(sequence)
        return awaited is not None

    def _still_reads(self, other: ResponseSequence, tokens: int) -> bool:
        return other in self._reading and other.row in self._cache and other.cached < tokens

    def _awaited(self, sequence: ResponseSequence) -> tuple[ResponseSequence, int] | None:
        """The prompt being read that will share most of this one's beginning, if no row shares as much."""
        usable = sequence.prompt[:-1]
        found = self._cache.find(sequence.served, usable)
        held = found.tokens if found else 0
        others = [
            (other, common_prefix(other.prompt, usable))
            for other in self._reading
            if other.served is sequence.served
            and other.row in self._cache
            and (sequence.background or not other.background)
        ]
        other, tokens = max(others, key=lambda one: one[1], default=(sequence, 0))
        return (other, tokens) if tokens - held >= WORTH and self._still_reads(other, tokens) else None

    def _continued(self, sequence: ResponseSequence, row: Row, tokens: int) -> Row:
        """The row itself, cut, if no request needs its rest; else a copy of its beginning."""
        length, lost = len(sequence.prompt), len(row.ids) - tokens
        if not row.users and (LOST * lost <= tokens or not self._cache.has_room(len(row.ids) + length)):
            row.cut(tokens)
            row.coming = length
            return row
        self._cache.use(row)
        try:
            self._cache.make_room(length)
            copy = row.first(tokens, coming=length)
        finally:
            self._cache.leave(row)
        self._cache.add(sequence.served, copy)
        return copy


class Decoding:
    """Sequences that are past their prompts: one token of each per step, all in one forward.

    Used from the worker's thread only. Row r of the batch belongs to `sequences[r]`.
    """

    def __init__(self, cache: PrefixCache, *, slots: int, context_length: int, in_place: int | None) -> None:
        self._cache, self._in_place = cache, in_place
        self.sequences: list[ResponseSequence] = []
        self._batch = Batch(slots=slots, context_length=context_length)

    def join(self, sequence: ResponseSequence) -> None:
        """Give a sequence whose prompt is read the row after the others."""
        last = len(sequence.prompt) - 1
        sequence.start = last if self._in_place is not None and last >= self._in_place else 0
        layers = row_of(sequence).layers_between(sequence.start, sequence.cached)
        self._batch.put(len(self.sequences), layers)
        self.sequences.append(sequence)

    def step(self, module: nn.Module, rows: Rows = no_adapters) -> list[tuple[ResponseSequence, Outcome]]:
        """The outcome of the next token of each response, by these weights; `rows` gives each its adapter.

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
        """Remove a response, and cache it unless it failed. The last row fills the hole, so that rows stay
        adjacent."""
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
        self, module: nn.Module, rows: Rows, first: int, sequences: Sequence[ResponseSequence]
    ) -> list[tuple[ResponseSequence, Outcome]]:
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
    ) -> list[tuple[ResponseSequence, Outcome]]:
        """After a failed forward over all rows: only those that fail alone end with an error."""
        try:
            return self._decode_rows(module, rows, row, [sequence])
        except Exception as error:  # a model is foreign code and may raise anything
            return [(sequence, failure_of(error))]

    def _keep(self, sequence: ResponseSequence, place: int) -> None:
        """Append the response to the prompt in its row, unless the row has more of another text."""
        row, text = row_of(sequence), sequence.text
        same = common_prefix(row.ids, text)
        lost = len(row.ids) - same
        if row not in self._cache or (lost and (row.users > 1 or LOST * lost > same)):
            return
        row.cut(same)
        start, end = same - sequence.start, len(text) - sequence.start
        try:
            row.extend(self._batch.taken(place, start, end), text[same:])
        except Exception:  # no memory for more: the row stays as it was
            log.exception("a response's keys and values could not be kept")


def _in_time(sequences: Sequence[ResponseSequence]) -> list[int]:
    """The rows whose next id can be drawn: all, unless masks are late."""
    awaited = {row: mask for row, one in enumerate(sequences) if (mask := one.awaited) is not None}
    if awaited:
        wait(awaited.values(), LATE_S)
    return [row for row in range(len(sequences)) if row not in awaited or awaited[row].done()]
