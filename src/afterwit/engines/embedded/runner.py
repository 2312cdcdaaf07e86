"""A model runner: one module, its slots, and the responses that are made with it."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from afterwit.adapters import SHARED
from afterwit.engines.embedded.cache import KeptRows
from afterwit.engines.embedded.decoding import (
    IN_PLACE,
    Decoding,
    Pace,
    Prompts,
    RequestQueue,
    Rows,
    alone,
    runs_now,
)
from afterwit.engines.embedded.forward import prefill, score
from afterwit.engines.embedded.sequence import Outcome, ResponseSequence, Served, failure_of, outcomes, row_of
from afterwit.engines.port import Generate, Weights
from afterwit.errors import EngineError
from afterwit.weights.lora import adds, beside, lora_of, pairs_of, taken
from afterwit.weights.rows import Factors, RowAdapters


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


class Runners:
    """One for the live weights, one for the base's, one for adapters of somebody's own beside the base's.

    They share the memory for keys and values of earlier requests. A quarter of the live one's slots is kept
    for requests that somebody waits for.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        slots: int,
        context_length: int,
        pace: Pace,
        kept_bytes: int,
        in_place: int | None = IN_PLACE,
    ) -> None:
        """`module` has the base's weights, `kept_bytes` is for earlier requests; else as in `ModelRunner`."""
        self.rows = RowAdapters(module)
        runner = partial(
            ModelRunner,
            version=0,
            slots=slots,
            context_length=context_length,
            pace=pace,
            kept=KeptRows(kept_bytes),
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
        """The runner of weights that all share."""
        return self._whole[weights]

    def live(self, adapter: str) -> int | None:
        """The version that answers an adapter's requests; None: it has none."""
        return self._whole[Weights.LIVE].version if adapter == SHARED else self._own.live(adapter)

    def promote(self, staged: Staged) -> None:
        """In the worker's thread, between two decode steps."""
        if staged.adapter == SHARED:
            self._whole[Weights.LIVE].swap(staged.module, staged.version)
        else:
            self._own.put(staged.adapter, staged.factors, staged.version)

    def unload(self, adapter: str) -> None:
        """In the worker's thread: have an adapter of somebody's own no more."""
        self._own.take(adapter)


Delivery = tuple[asyncio.Queue[Any], Any]
"""An event and the queue it goes to."""

log = logging.getLogger(__name__)


class EventBuffer:
    """A tick's events by event loop: each loop is woken once a tick, for all its sequences."""

    def __init__(self) -> None:
        self._events: dict[asyncio.AbstractEventLoop, list[Delivery]] = defaultdict(list)

    def put(self, loop: asyncio.AbstractEventLoop, target: asyncio.Queue[Any], event: Any) -> None:
        self._events[loop].append((target, event))

    def flush(self) -> None:
        events, self._events = self._events, defaultdict(list)
        for loop, batch in events.items():
            try:
                loop.call_soon_threadsafe(_deliver, batch)
            except RuntimeError:  # the loop has closed: nobody listens any more
                log.debug("a client's event loop closed before its response ended")


def _deliver(batch: list[Delivery]) -> None:
    for target, event in batch:
        target.put_nowait(event)


class Worker(threading.Thread):
    """Steps the runners until `stop`. Actions posted from other threads run between two decode steps."""

    def __init__(self, runners: tuple[ModelRunner, ...], events: EventBuffer) -> None:
        super().__init__(name="afterwit-engine", daemon=True)
        self._runners = runners
        self._events = events
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._going = True
        self._tick = 0

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` before the next decode step."""
        self._inbox.put(action)

    def call(self, action: Callable[[], None]) -> Future[None]:
        """As `post`; the future is done once the action has run."""
        future: Future[None] = Future()

        def run() -> None:
            try:
                action()
            except Exception as error:  # for the caller, whatever it is
                future.set_exception(error)
            else:
                future.set_result(None)

        self.post(run)
        return future

    def stop(self, error: Exception) -> Future[None]:
        """End the thread; every request that runs or waits gets `error`."""

        def end() -> None:
            self._going = False
            self._fail(error)

        return self.call(end)

    @torch.inference_mode()
    def run(self) -> None:
        while self._going:
            try:
                self._drain_inbox()
                self._step()
            except Exception as error:  # not one request's fault: none of them can go on safely
                log.exception("the engine's step failed")
                self._fail(EngineError(f"The engine failed: {error}"))
            self._events.flush()

    def _drain_inbox(self) -> None:
        """Run what was posted; sleep while there is nothing else to do."""
        if self._going and all(runner.idle for runner in self._runners):
            self._inbox.get()()
        while not self._inbox.empty():
            self._inbox.get()()

    def _step(self) -> None:
        self._tick += 1
        foreground = any(runner.has_foreground for runner in self._runners)
        decodes = any(runner.decodes for runner in self._runners)
        for runner in self._runners:
            background_only = not runner.has_foreground
            if runs_now(background_only=background_only, foreground_elsewhere=foreground, tick=self._tick):
                runner.tick(self._tick, others_decode=decodes)

    def _fail(self, error: Exception) -> None:
        for runner in self._runners:
            runner.fail(error)


Loader = Callable[[Path], nn.Module]
OwnLoader = Callable[[Path, RowAdapters], Factors | None]


class Staged(NamedTuple):
    """Weights that serve nobody yet: a module, or one that all share with factors of its own."""

    adapter: str
    version: int
    module: nn.Module
    folder: Path
    factors: Factors | None = None


class Staging:
    """What is loaded runs in other threads; decoding goes on meanwhile."""

    def __init__(
        self, base: nn.Module, rows: RowAdapters, *, load: Loader, own: OwnLoader | None = None
    ) -> None:
        """`load` reads a version's folder, `own` that of somebody's own adapter; None: there can be none."""
        self._base, self._rows, self._load, self._load_own = base, rows, load, own
        self._staged: Staged | None = None

    @property
    def takes_own(self) -> bool:
        """Whether somebody can have an adapter of their own."""
        return self._load_own is not None

    @property
    def staged(self) -> Staged:
        """EngineError if nothing is."""
        if self._staged is None:
            raise EngineError("No weights are staged.")
        return self._staged

    async def stage(self, version: int, folder: Path, adapter: str) -> None:
        """In place of what was staged. EngineError if the folder's weights do not fit."""
        self.discard()
        if adapter != SHARED:
            if self._load_own is None:
                raise EngineError("This engine has no adapters of somebody's own.")
            factors = await asyncio.to_thread(self._load_own, folder, self._rows)
            self._staged = Staged(adapter, version, self._rows.module, folder, factors)
            return
        module = await asyncio.to_thread(self._load, folder)
        _check_shapes(module, self._base, folder)
        self._staged = Staged(adapter, version, module, folder)

    async def probe(self, ids: Sequence[int], times: float) -> list[float]:
        """Log-probs of ids[1:] under the staged weights, their adapter taken `times` times."""
        staged = self.staged
        try:
            return await asyncio.to_thread(self._probed, staged, tuple(ids), times)
        except Exception as error:  # a model is foreign code and may raise anything
            raise EngineError(f"The staged weights cannot be probed: {error}") from error

    def discard(self) -> None:
        self._staged = None

    def _probed(self, staged: Staged, ids: Sequence[int], times: float) -> list[float]:
        if times == 0.0 and (staged.factors is not None or lora_of(staged.folder) is not None):
            return score(self._base, ids)
        factors = None if staged.factors is None else staged.factors.times(times)
        with self._rows.rows([factors]), taken(self._takeable(staged, times), times) as module:
            return score(module, ids)

    def _takeable(self, staged: Staged, times: float) -> nn.Module:
        """A merged adapter is beside the weights for a probe: there it can be taken several times."""
        merged = times != 1.0 and staged.adapter == SHARED and not adds(staged.module)
        if not merged or (lora := lora_of(staged.folder)) is None:
            return staged.module
        return beside(self._base, pairs_of(staged.folder), lora.scale)


def _check_shapes(module: nn.Module, base: nn.Module, folder: Path) -> None:
    """EngineError unless both have the same weights by name and shape."""
    theirs, ours = (
        {name: tuple(weight.shape) for name, weight in m.named_parameters()} for m in (module, base)
    )
    if theirs != ours:
        different = sorted(name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name))
        raise EngineError(f"The weights in {folder} do not fit the served model: {different[:3]} differ.")
