"""Runs a module: gives requests their slots, reads prompts in pieces, decodes all responses together.

The decisions (who starts, what is read on, how much) need no device.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from afterwit.engines.embedded.cache import WORTH, Batch, PrefixCache, Row
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.sequence import Draw, Drawn, ResponseSequence, Served, draw
from afterwit.errors import EngineError
from afterwit.text import prefix_length
from afterwit.turn import SHARED
from afterwit.weights.weights import Factors

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

Outcome = Drawn | EngineError
Rows = Callable[[Sequence[Factors | None]], AbstractContextManager[None]]
"""Within the body, each row of a batch is computed with the adapter at its index."""

log = logging.getLogger(__name__)


class RequestQueue(list[ResponseSequence]):
    """Requests that wait for a slot, in order of arrival. Those in the background, and further choices of a
    response, yield to the others.

    `reserve` slots are never given to background requests, and the last one to no further choice.
    """

    def __init__(self, *, slots: int, reserve: int) -> None:
        super().__init__()
        self._slots, self._background_slots = slots, max(1, slots - reserve)
        self._passed = 0
        """Requests that started while one that yields could have."""

    def next(self, running: Sequence[ResponseSequence]) -> ResponseSequence | None:
        """Take out the request that may start next to the running ones; None if no slot is free for one."""
        if not self or len(running) >= self._slots:
            return None
        further = len(running) < max(1, self._slots - 1)
        background = sum(other.background for other in running) < self._background_slots
        yielding, first = None, None
        for request in self:
            if not (request.background or request.further):
                first = first or request
            elif background if request.background else further:
                yielding = yielding or request
        if first is not None and (yielding is None or self._passed < BACKGROUND_EVERY):
            self._passed += yielding is not None
            self.remove(first)
            return first
        if yielding is not None:
            self._passed = 0
            self.remove(yielding)
        return yielding


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


class ModelRunner:
    """One module, its slots, and the responses that are made with it. Used from the worker's thread only.

    With a slot, a sequence waits while another one reads most of its prompt; it reads its own into a `Row`,
    in pieces between decode steps; then it decodes in a batch with the others, one token per tick. When it
    ends, its ids are appended to the row, which is cached for requests with the same beginning.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        slots: int,
        reserve: int,
        context_length: int,
        budget: PrefillBudget,
        cache: PrefixCache,
        in_place: int | None = IN_PLACE,
        rows: Rows = lambda adapters: nullcontext(),
    ) -> None:
        """Prompts of more than `in_place` tokens stay in their row; None: the attention does not support it.

        `rows` gives each row of a batch its adapter.
        """
        self.module, self._rows = module, rows
        self.served = {SHARED: Served(0)}
        """By adapter. Those that are not here are answered by the module alone, as the shared one is."""
        self.queue = RequestQueue(slots=slots, reserve=reserve)
        self._budget, self._cache = budget, cache
        self._context_length, self._in_place = context_length, in_place
        self._waiting: dict[ResponseSequence, tuple[ResponseSequence, int] | None] = {}
        """Those without a row: the prompt that each waits for, and until how many of its tokens are read."""
        self._reading: list[ResponseSequence] = []
        self._decoding: list[ResponseSequence] = []
        """Row r of the batch belongs to the sequence at r."""
        self._batch = Batch(slots=slots, context_length=context_length)
        self.fault: str | None = None
        """Why nothing can be answered any more."""

    @property
    def running(self) -> list[ResponseSequence]:
        return [*self._decoding, *self._reading, *self._waiting]

    @property
    def decodes(self) -> bool:
        """Whether a response is past its prompt."""
        return bool(self._decoding)

    @property
    def idle(self) -> bool:
        return not (self.running or self.queue)

    @property
    def has_foreground(self) -> bool:
        return any(not sequence.background for sequence in (*self.queue, *self.running))

    def add(self, sequence: ResponseSequence) -> None:
        sequence.served = self.served.get(sequence.request.adapter, self.served[SHARED])
        self.queue.append(sequence)

    def cancel(self, sequence: ResponseSequence) -> None:
        if sequence in self.queue:
            self.queue.remove(sequence)
        else:
            self._release(sequence)

    def swap(
        self, version: int, module: nn.Module, adapter: str = SHARED, factors: Factors | None = None
    ) -> None:
        """Go on with other weights of an adapter: another module, or other factors over the same one.

        The prefix cache of the old ones is forgotten. Responses of a new adapter that began with the module
        alone end so.
        """
        served = self.served.setdefault(adapter, Served(version))
        self.module, served.version, served.factors = module, version, factors
        self._cache.forget(served)

    def unload(self, adapter: str) -> None:
        """Unload a personal adapter. Its running responses end with it."""
        if (served := self.served.pop(adapter, None)) is not None:
            self._cache.forget(served)

    def fail(self, error: Exception) -> None:
        running = self.running
        for sequence in (*self.queue, *running):
            sequence.deliver(error)
        for sequences in (self.queue, self._waiting, self._reading, self._decoding):
            sequences.clear()
        self._batch.clear()
        for served in {*self.served.values(), *(sequence.served for sequence in running)}:
            self._cache.forget(served)

    def tick(self, number: int, *, others_decode: bool = False) -> None:
        """One decode step of every response, then a limited piece of the prompts.

        While a foreground prompt is read, responses that are all in the background step rarely.
        `others_decode`: another runner's responses wait for this one's work.
        """
        while sequence := self.queue.next(self.running):
            self._waiting[sequence] = None
        for sequence in list(self._waiting):
            if not self._waits(sequence):
                try:
                    self._start(sequence)
                except Exception as error:  # no memory for a copy, for one
                    self._deliver(sequence, self._failure(error))
        yields = any(not each.background for each in self._reading)
        yields = yields and all(each.background for each in self._decoding)
        if not yields or number % BACKGROUND_EVERY == 0:
            for sequence, outcome in self._decode():
                self._deliver(sequence, outcome)
        self._prefill(number, decoding=others_decode or (self.decodes and not yields))

    def _waits(self, sequence: ResponseSequence) -> bool:
        """Whether a prompt that is being read will soon share more of this one's beginning than any row."""

        def reads(other: ResponseSequence, tokens: int) -> bool:
            return other in self._reading and other.row in self._cache and other.cached < tokens

        awaited = self._waiting[sequence]
        if awaited is None or not reads(*awaited):
            usable = sequence.prompt[:-1]
            others = [
                (other, prefix_length(other.prompt, usable))
                for other in self._reading
                if other.served is sequence.served and (sequence.background or not other.background)
                if other.row in self._cache
            ]
            other, tokens = max(others, key=lambda each: each[1], default=(sequence, 0))
            awaited = None
            if tokens >= WORTH and reads(other, tokens):
                _, held = self._cache.find(sequence.served, usable) or (None, 0)
                awaited = (other, tokens) if tokens - held >= WORTH else None
            self._waiting[sequence] = awaited
        return awaited is not None

    def _start(self, sequence: ResponseSequence) -> None:
        """Give a sequence the row with most of its beginning, in which it reads on; else a new one.

        A row that holds all but the last token is shared; then the sequence decodes at once. Another one is
        cut if no request needs its rest and little is lost; else its beginning is copied.
        """
        length, usable = len(sequence.prompt), sequence.prompt[:-1]
        row, tokens = self._cache.find(sequence.served, usable) or (None, 0)
        if row is None:
            self._cache.make_room(length)
            row = Row(context_length=self._context_length, coming=length)
            self._cache.add(sequence.served, row)
        elif tokens < len(usable):
            lost = len(row.ids) - tokens
            if not row.users and (LOST * lost <= tokens or not self._cache.has_room(len(row.ids) + length)):
                row.cut(tokens)
                row.coming = length
            else:
                self._cache.make_room(length, keep=row)
                row = row.first(tokens, coming=length)
                self._cache.add(sequence.served, row)
        if tokens:
            sequence.extend_cache(tokens)
        self._cache.use(row)
        sequence.row = row
        del self._waiting[sequence]
        self._reading.append(sequence)
        if sequence.uncached <= 1:
            self._join(sequence)

    def _prefill(self, number: int, *, decoding: bool) -> None:
        """Read prompts on, by at most `budget.chunk` of work in all.

        If responses are decoding, a prompt waits after a piece until decode steps have paid for it; prompts
        pay back together.
        """
        budget, owing = self._budget, sum(sequence.owed > 0 for sequence in self._reading)
        for sequence in self._reading:
            owed = sequence.owed - budget.per_step / owing if decoding and owing else 0.0
            sequence.owed = max(0.0, owed)
        room = float(budget.chunk)
        while room > 0 and (ready := [sequence for sequence in self._reading if not sequence.owed]):
            sequence = next_prefill(ready, number)
            least = min(LEAST, sequence.uncached)
            size = min(budget.tokens(room, sequence.cached), sequence.uncached)
            if size < least and room < budget.chunk:
                return
            size = max(size, least)
            work = budget.work(size, sequence.cached)
            room -= work
            sequence.owed = work if decoding else 0.0
            self._read(sequence, size)

    def _read(self, sequence: ResponseSequence, size: int) -> None:
        """Read a piece of a prompt. Once all is read, the sequence decodes, and its first id is drawn."""
        ids = sequence.prompt[sequence.cached : sequence.cached + size]
        try:
            with self._rows([sequence.served.factors]):
                logits_1V = prefill(self.module, sequence.row, ids, keep=int(size == sequence.uncached))
            sequence.read += size
            sequence.extend_cache(size)
            if sequence.uncached:
                return
            if late := sequence.awaited is not None:
                sequence.cached -= 1  # a decode step reads the last id again, and draws then
            self._join(sequence)
            if late:
                return
            (outcome,) = _outcomes(logits_1V, [sequence.draw()])
        except Exception as error:  # a model is foreign code and may raise anything
            outcome = self._failure(error)
        self._deliver(sequence, outcome)

    def _join(self, sequence: ResponseSequence) -> None:
        last = len(sequence.prompt) - 1
        sequence.start = last if self._in_place is not None and last >= self._in_place else 0
        self._batch.put(len(self._decoding), sequence.row.layers_between(sequence.start, sequence.cached))
        self._decoding.append(sequence)
        self._reading.remove(sequence)

    def _decode(self) -> list[tuple[ResponseSequence, Outcome]]:
        """The next token of each response, by the present weights.

        If the forward fails, each row is tried alone, so that only those that fail end with an error.
        """
        sequences = list(self._decoding)
        if not sequences:
            return []
        try:
            return self._decode_rows(0, sequences)
        except Exception:  # a model is foreign code and may raise anything
            found: list[tuple[ResponseSequence, Outcome]] = []
            for row, sequence in enumerate(sequences):
                try:
                    found += self._decode_rows(row, [sequence])
                except Exception as error:
                    found.append((sequence, self._failure(error)))
            return found

    def _failure(self, error: Exception) -> EngineError:
        if isinstance(error, torch.AcceleratorError):
            self.fault = f"the GPU failed, and this process can use it no more, so restart it: {error}"
        failure = EngineError(
            f"The model could not go on with this response: {type(error).__name__}: {error}"
        )
        failure.__cause__ = error
        return failure

    def _decode_rows(
        self, first: int, sequences: Sequence[ResponseSequence]
    ) -> list[tuple[ResponseSequence, Outcome]]:
        """The next id of rows first.., all in one forward.

        A response whose mask is late is left out, and its position is read again in the next step.
        """
        last = [sequence.last_id for sequence in sequences]
        positions = [sequence.cached for sequence in sequences]
        beginnings = [sequence.beginning for sequence in sequences]
        with self._rows([sequence.served.factors for sequence in sequences]):
            logits_BV = decode(self.module, self._batch, first, last, positions, beginnings)
        awaited = {row: mask for row, each in enumerate(sequences) if (mask := each.awaited) is not None}
        if awaited:
            wait(awaited.values(), LATE_S)
            ready = [row for row in range(len(sequences)) if row not in awaited or awaited[row].done()]
            logits_BV, sequences = logits_BV[ready], [sequences[row] for row in ready]
        found = _outcomes(logits_BV, [sequence.draw() for sequence in sequences])
        for sequence in sequences:
            sequence.extend_cache(1)
        return list(zip(sequences, found, strict=True))

    def _deliver(self, sequence: ResponseSequence, outcome: Outcome) -> None:
        outcome = sequence.refusal or outcome
        if isinstance(outcome, EngineError):
            sequence.deliver(outcome)
            self._release(sequence, failed=True)
            return
        step = sequence.accept(*outcome)
        sequence.deliver(step)
        if step.ended:
            self._release(sequence)

    def _release(self, sequence: ResponseSequence, *, failed: bool = False) -> None:
        """Free a sequence's slot, if it has one. A failed one is not cached."""
        if sequence in self._decoding:
            self._leave(sequence, failed=failed)
        elif sequence in self._reading:
            self._reading.remove(sequence)
        else:
            self._waiting.pop(sequence, None)
            return
        if failed:
            self._cache.drop(sequence.row)
        self._cache.leave(sequence.row)

    def _leave(self, sequence: ResponseSequence, *, failed: bool) -> None:
        """Remove a response from the batch. The last row fills the hole, so that rows stay adjacent."""
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
        """Append the response to the prompt in its row, unless the row has more of another text."""
        row, text = sequence.row, sequence.text
        same = prefix_length(row.ids, text)
        lost = len(row.ids) - same
        if row not in self._cache or (lost and (row.users > 1 or LOST * lost > same)):
            return
        row.cut(same)
        start, end = same - sequence.start, len(text) - sequence.start
        try:
            row.extend(self._batch.layers_between(start, end, row=place), text[same:])
        except Exception:  # no memory for more: the row stays as it was
            log.exception("a response's keys and values could not be kept")


def _outcomes(logits_BV: Tensor, draws: Sequence[Draw]) -> list[Outcome]:
    """Each row's next id, or an error if its log-prob is not finite."""
    return [
        drawn if math.isfinite(drawn[1]) else EngineError("The model's logits are not finite.")
        for drawn in draw(logits_BV, draws)
    ]
