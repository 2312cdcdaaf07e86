"""Model runners: one module each, its slots, and the responses that are made with it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import nn

from afterwit.adapters import SHARED
from afterwit.engines.embedded.cache import PrefixCache
from afterwit.engines.embedded.decoding import (
    IN_PLACE,
    Decoding,
    PrefillBudget,
    Prompts,
    RequestQueue,
    Rows,
    no_adapters,
)
from afterwit.engines.embedded.forward import prefill
from afterwit.engines.embedded.load import Staged
from afterwit.engines.embedded.sequence import Outcome, ResponseSequence, Served, failure_of, outcomes, row_of
from afterwit.engines.port import Generate, Weights
from afterwit.errors import EngineError
from afterwit.weights.lora import Factors, RowAdapters


class ModelRunner:
    """Used from the worker's thread only.

    A sequence reads its prompt into a `Row`, in pieces between decode steps. Then it decodes in a batch with
    the others, one token per tick. When it ends, its ids are appended to the row, which is cached for
    requests with the same beginning.
    """

    def __init__(
        self,
        module: nn.Module,
        version: int,
        *,
        slots: int,
        reserve: int,
        context_length: int,
        budget: PrefillBudget,
        cache: PrefixCache,
        in_place: int | None = IN_PLACE,
        rows: Rows = no_adapters,
    ) -> None:
        """Prompts of more than `in_place` tokens stay in their row; None: the attention does not support it.

        `rows` gives each row of a batch its adapter.
        """
        self.module = module
        self._rows = rows
        self._served = Served(version)
        self._own: dict[str, Served] = {}
        self.queue = RequestQueue(slots=slots, reserve=reserve)
        self._budget, self._cache = budget, cache
        self._prompts = Prompts(cache, context_length=context_length, budget=budget)
        self._decoding = Decoding(cache, slots=slots, context_length=context_length, in_place=in_place)

    @property
    def version(self) -> int:
        """Of the module's own weights."""
        return self._served.version

    def live(self, adapter: str) -> int | None:
        """The version of a personal adapter; None: it is not loaded, and the module answers alone."""
        served = self._own.get(adapter)
        return None if served is None else served.version

    @property
    def running(self) -> list[ResponseSequence]:
        """Every sequence with a slot."""
        return [*self._decoding.sequences, *self._prompts.sequences]

    @property
    def decodes(self) -> bool:
        """Whether a response is past its prompt."""
        return bool(self._decoding.sequences)

    @property
    def idle(self) -> bool:
        return not (self.running or self.queue)

    @property
    def has_foreground(self) -> bool:
        """Whether a foreground request runs or waits."""
        return self.queue.foreground_waits or any(not sequence.background for sequence in self.running)

    def add(self, sequence: ResponseSequence) -> None:
        sequence.served = self._own.get(sequence.request.adapter, self._served)
        self.queue.add(sequence)

    def cancel(self, sequence: ResponseSequence) -> None:
        """Free its slot or its place in the queue, if it has one."""
        if not self.queue.remove(sequence):
            self._release(sequence)

    def swap(self, module: nn.Module, version: int) -> None:
        """Go on with other weights. The prefix cache of the old ones is forgotten."""
        self.module, self._served.version = module, version
        self._cache.forget(self._served)

    def put(self, adapter: str, factors: Factors | None, version: int) -> None:
        """Go on with other weights of one adapter. Its responses that began with the module alone end so."""
        if (served := self._own.get(adapter)) is None:
            self._own[adapter] = Served(version, factors)
            return
        served.version, served.factors = version, factors
        self._cache.forget(served)

    def take(self, adapter: str) -> None:
        """Unload an adapter. Its running responses end with it."""
        if (served := self._own.pop(adapter, None)) is not None:
            self._cache.forget(served)

    def tick(self, number: int, *, others_decode: bool = False) -> None:
        """One decode step of every response, then a limited piece of the prompts.

        `others_decode`: another runner's responses wait for this one's work.
        """
        while sequence := self.queue.next(self.running):
            self._prompts.add(sequence)
        for sequence in self._prompts.startable():
            self._start(sequence)
        for sequence, outcome in self._decoding.step(self.module, self._rows):
            self._deliver(sequence, outcome)
        self._prefill(number, decoding=others_decode or self.decodes)

    def fail(self, error: Exception) -> None:
        """End every response with this error."""
        while sequence := self.queue.next(()):
            sequence.deliver(error)
        running = self.running
        for sequence in running:
            sequence.deliver(error)
        self._decoding.clear()
        self._prompts.clear()
        for served in {self._served, *self._own.values(), *(sequence.served for sequence in running)}:
            self._cache.forget(served)

    def _start(self, sequence: ResponseSequence) -> None:
        """Give a sequence a row. If its prompt was read for another, it decodes at once."""
        try:
            if not self._prompts.start(sequence):
                self._join(sequence)
        except Exception as error:  # no memory for a copy, for one
            self._deliver(sequence, failure_of(error))

    def _prefill(self, number: int, *, decoding: bool) -> None:
        """Read prompts on, by at most `budget.chunk` of work in all.

        If responses are decoding, a prompt waits after a piece until decode steps have paid for it.
        """
        self._prompts.pay(decoding=decoding)
        room = float(self._budget.chunk)
        while piece := self._prompts.piece(number, room):
            sequence, size = piece
            work = self._budget.work(size, sequence.cached)
            room -= work
            sequence.owed = work if decoding else 0.0
            try:
                outcome = self._read(sequence, size)
            except Exception as error:  # a model is foreign code and may raise anything
                outcome = failure_of(error)
            if outcome is not None:
                self._deliver(sequence, outcome)

    def _read(self, sequence: ResponseSequence, size: int) -> Outcome | None:
        """Read a piece of a prompt; once the prompt is read, draw the first id of the response."""
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
        """The prompt is read: decode from now on."""
        self._decoding.join(sequence)
        self._prompts.remove(sequence)

    def _deliver(self, sequence: ResponseSequence, outcome: Outcome) -> None:
        """Deliver the drawn id or the error. Free the slot of a response that has ended."""
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
        """Free a sequence's slot, if it has one. A failed one is not cached."""
        if not (self._prompts.remove(sequence) or sequence in self._decoding.sequences):
            return
        if sequence in self._decoding.sequences:
            self._decoding.leave(sequence, failed=failed)
        if sequence.row is not None:
            if failed:
                self._cache.drop(sequence.row)
            self._cache.leave(sequence.row)


class Runners:
    """A runner each for the live weights, the base's, and personal adapters over the base.

    They share the prefix cache. A quarter of the live one's slots is reserved for foreground requests.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        slots: int,
        context_length: int,
        budget: PrefillBudget,
        cache_bytes: int,
        in_place: int | None = IN_PLACE,
    ) -> None:
        """`module` has the base's weights. The other arguments are those of `ModelRunner` and
        `PrefixCache`."""
        self.rows = RowAdapters(module)
        runner = partial(
            ModelRunner,
            version=0,
            slots=slots,
            context_length=context_length,
            budget=budget,
            cache=PrefixCache(cache_bytes),
            in_place=in_place,
        )
        self._whole = {
            Weights.LIVE: runner(module, reserve=slots // 4),
            Weights.BASE: runner(module, reserve=0),
        }
        self._own = runner(self.rows.module, reserve=0, rows=self.rows.rows)

    def __iter__(self) -> Iterator[ModelRunner]:
        yield from (*self._whole.values(), self._own)

    def of(self, request: Generate) -> ModelRunner:
        own = request.weights is Weights.LIVE and request.adapter != SHARED
        return self._own if own else self._whole[request.weights]

    def whole(self, weights: Weights) -> ModelRunner:
        """The runner of the shared weights."""
        return self._whole[weights]

    def live(self, adapter: str) -> int | None:
        """The version that answers an adapter's requests; None: it is not loaded."""
        return self._whole[Weights.LIVE].version if adapter == SHARED else self._own.live(adapter)

    def promote(self, staged: Staged) -> None:
        """Called in the worker's thread, between two decode steps."""
        if staged.adapter == SHARED:
            self._whole[Weights.LIVE].swap(staged.module, staged.version)
        else:
            self._own.put(staged.adapter, staged.factors, staged.version)

    def unload(self, adapter: str) -> None:
        """Called in the worker's thread."""
        self._own.take(adapter)
