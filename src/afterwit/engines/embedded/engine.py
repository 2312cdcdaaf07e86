"""The embedded engine: the port over a worker thread, and the versions that it loads and probes."""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, TypeVarTuple, Unpack

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel

from afterwit.engines.embedded.cache import PrefixCache, budget_of
from afterwit.engines.embedded.fitness import (
    check_attention,
    context_of,
    device_and_dtype,
    prefill_budget,
    refusal,
)
from afterwit.engines.embedded.forward import NAME, score, score_rows
from afterwit.engines.embedded.grammar import Grammars, Guide
from afterwit.engines.embedded.runner import BACKGROUND_EVERY, IN_PLACE, ModelRunner, PrefillBudget
from afterwit.engines.embedded.sequence import ResponseSequence
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.model_files import facts_of
from afterwit.engines.port import (
    CLOSED,
    Capabilities,
    Facts,
    Generate,
    Score,
    Scored,
    Step,
    Weights,
    check_fits,
    check_scores,
    require_staged,
)
from afterwit.errors import EngineError, EngineUnavailable, RequestRefused, SettingError
from afterwit.turn import SHARED, Basis
from afterwit.weights.adapter import lora_of
from afterwit.weights.weights import (
    Factors,
    RowAdapters,
    adapted,
    load_causal_lm,
    pairs_of,
    read_config,
    return_freed,
)

CAPABILITIES = Capabilities(
    basis=Basis.PROCESSED,
    base_weights=True,
    forced_prefix=True,
    whole_weights=True,
    adapters=True,
    own_adapters=True,
    constraint=True,
    top_logprobs=20,
    scored_tau=True,
)

Script = Callable[[tuple[int, ...]], Sequence[int] | None]
"""A prompt's ids to the ids of its whole response, or None to sample it. For tests.

An end id is added if the response has none. Scripted ids are not flagged as forced: they count as sampled.
"""
Events = asyncio.Queue[Step | Exception]
Done = TypeVar("Done")
Given = TypeVarTuple("Given")

log = logging.getLogger(__name__)


class EmbeddedEngine:
    """Implements `port.Engine`.

    Weights in memory: one copy while live is the base; base and live after the first swap; base, live and
    staged between `stage` and `promote` or `discard`. The peak is three copies, plus the keys and values.
    Versions that are adapters share with the base the weights that no adapter moves (embeddings, head,
    norms); in half precision they share all. Personal adapters are factors alone over the base's weights: a
    batch is computed with each row's own.

    A response that is running at a swap goes on with the new weights over its old keys and values. Each
    token's version is that of the weights whose logits it was drawn from; the step's `cache_version` is the
    oldest version in its cache. A request that begins after the swap reuses nothing that older weights read.
    """

    reduced: None = None

    def __init__(
        self,
        module: nn.Module,
        facts: Facts,
        *,
        load: Callable[[Path], nn.Module],
        load_own: Callable[[Path, RowAdapters], Factors | None],
        slots: int,
        budget: PrefillBudget,
        cache_bytes: int,
        in_place: int | None = IN_PLACE,
        grammars: Grammars | None = None,
        script: Script | None = None,
        seed: int | None = None,
    ) -> None:
        """`module` has the base's weights. `load` reads a version's folder, `load_own` a personal adapter's.

        The runners of the live weights, the base's, and personal adapters over the base share one prefix
        cache. A quarter of the live one's slots is reserved for foreground requests. Without `grammars` no
        constraint is supported. `seed` makes requests without one reproducible.
        """
        self.facts = facts
        self.capabilities = replace(
            CAPABILITIES, constraint=grammars is not None, scored_ids=facts.vocabulary
        )
        self.grammars = grammars
        self._base, self._rows = module, RowAdapters(module)
        self._load, self._load_own = load, load_own
        runner = partial(
            ModelRunner,
            slots=slots,
            context_length=facts.context_length,
            budget=budget,
            cache=PrefixCache(cache_bytes),
            in_place=in_place,
        )
        self.runners = {
            Weights.LIVE: runner(module, reserve=slots // 4),
            Weights.BASE: runner(module, reserve=0),
        }
        self._own = runner(self._rows.module, reserve=0, rows=self._rows.rows)
        self._staged: Staged | None = None
        self._script = script
        self._seeds = random.Random(seed)
        self._open = True
        self._scoring = asyncio.Lock()
        self._worker = Worker((*self.runners.values(), self._own))
        self._loader = ThreadPoolExecutor(1, "afterwit-load")
        self._worker.start()

    @classmethod
    def load(
        cls,
        folder: Path,
        settings: EmbeddedSettings,
        *,
        script: Script | None = None,
        seed: int | None = None,
    ) -> Self:
        """The engine over a Hugging Face folder. SettingError, before anything runs, if it cannot be
        served."""
        if settings.threads:
            torch.set_num_threads(settings.threads)
        device, dtype = device_and_dtype(settings)
        config = read_config(folder).get_text_config()
        context_length = context_of(config.to_dict(), settings.context_length)
        if reason := refusal(config.to_dict(), context_length):
            raise SettingError(f"{folder} cannot be served by the embedded engine: {reason}")
        facts = facts_of(
            folder,
            kind=settings.kind,
            context_length=context_length,
            vocabulary=config.vocab_size,
            dtype=str(dtype).removeprefix("torch."),
        )
        module = load_module(folder, device, dtype)
        return cls(
            module,
            facts,
            load=partial(load_version, base=module, root=folder, device=device, dtype=dtype),
            load_own=partial(load_own, root=folder),
            slots=settings.slots,
            budget=prefill_budget(module, config, settings, device),
            cache_bytes=budget_of(settings, device),
            in_place=IN_PLACE if check_attention(module, facts.vocabulary) else None,
            grammars=Grammars(folder, facts),
            script=script,
            seed=seed,
        )

    @property
    def version(self) -> int:
        return self.runners[Weights.LIVE].served[SHARED].version

    def live(self, adapter: str) -> int | None:
        served = self._own.served.get(adapter)
        return self.version if adapter == SHARED else None if served is None else served.version

    @property
    def fault(self) -> str | None:
        if not (self._open and self._worker.is_alive()):
            return CLOSED
        return next((each.fault for each in (*self.runners.values(), self._own) if each.fault), None)

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """One Step per token.

        Close the generator (`contextlib.aclosing`) to cancel: its slot is free before the next decode step.
        """
        runner, sequence, events = await self._prepared(request)
        self._worker.post(partial(runner.add, sequence))
        try:
            while True:
                step = await next_step(events)
                yield step
                if step.ended:
                    return
        finally:
            self._worker.post(partial(runner.cancel, sequence))

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """In another thread, one call at a time, while the worker decodes.

        A call is scored by the weights that are live when its turn comes.
        """
        self._check_open()
        check_scores(rows, top, self.facts, self.capabilities)
        runner = self.runners[weights]
        async with self._scoring:
            self._check_open()
            # read in the worker's thread: there they change together
            module, version = await self._worker.call(lambda: (runner.module, runner.served[SHARED].version))
            try:
                return await asyncio.to_thread(score_rows, module, version, tuple(rows), top=top)
            except Exception as error:  # a model is foreign code and may raise anything
                raise EngineError(f"The rows cannot be scored: {error}") from error

    async def stage(self, version: int, folder: Path, *, adapter: str = SHARED) -> None:
        self._check_open()
        self._staged = None
        if adapter == SHARED:
            module = await self._in_loader(self._load, folder)
            self._staged = Staged(version, adapter, folder, module)
        else:
            factors = await self._in_loader(self._load_own, folder, self._rows)
            self._staged = Staged(version, adapter, folder, self._rows.module, factors)

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        staged = require_staged(self._staged)
        try:
            return await self._in_loader(probed, staged, self._base, self._rows, tuple(ids), times)
        except Exception as error:  # a model is foreign code and may raise anything
            raise EngineError(f"The staged weights cannot be probed: {error}") from error

    async def promote(self) -> None:
        self._check_open()
        version, adapter, _, module, factors = require_staged(self._staged)
        runner = self.runners[Weights.LIVE] if adapter == SHARED else self._own
        await self._worker.call(partial(runner.swap, version, module, adapter, factors))
        self._staged = None
        await self._return_memory()

    async def unload(self, adapter: str) -> None:
        self._check_open()
        await self._worker.call(partial(self._own.unload, adapter))

    async def discard(self) -> None:
        self._staged = None
        await self._return_memory()

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._staged = None
        await self._worker.call(partial(self._worker.end, EngineUnavailable(CLOSED)))
        await asyncio.to_thread(self._worker.join)
        await asyncio.to_thread(self._loader.shutdown)
        if self.grammars is not None:
            self.grammars.close()

    async def _prepared(self, request: Generate) -> tuple[ModelRunner, ResponseSequence, Events]:
        """A request's runner, its sequence, and the queue that gets its steps. A schema is compiled in
        another thread."""
        self._check_open()
        check_fits(request, self.facts)
        script = self._script(request.prompt_ids) if self._script else None
        given, ends = tuple(script or ()), self.facts.end_ids
        if script is not None and ends and not (given and given[-1] in ends):
            given = (*given, min(ends))
        seed = self._seeds.getrandbits(63)
        loop, guide = asyncio.get_running_loop(), None
        if request.constraint is not None and not given:
            if self.grammars is None:
                raise RequestRefused("This engine follows no constraint.", field="constraint")
            make = partial(Guide, request.constraint, self.grammars)
            guide = await loop.run_in_executor(self.grammars.compilers, make)
            self._check_open()
        events: Events = asyncio.Queue()
        sequence = ResponseSequence(
            request,
            facts=self.facts,
            scripted=given,
            seed=seed,
            deliver=partial(self._worker.deliver, loop, events),
            guide=guide,
        )
        own = request.weights is Weights.LIVE and request.adapter != SHARED
        return self._own if own else self.runners[request.weights], sequence, events

    async def _in_loader(self, work: Callable[[Unpack[Given]], Done], *given: *Given) -> Done:
        """Run `work` in the one thread that loads weights. A thread holds its work's arguments and result
        for a moment after it is done; memory returned by the same thread is not held so."""
        return await asyncio.get_running_loop().run_in_executor(self._loader, work, *given)

    async def _return_memory(self) -> None:
        if self._open:
            await self._in_loader(return_freed)

    def _check_open(self) -> None:
        if self.fault is not None:
            raise EngineUnavailable(self.fault)


def load_module(folder: Path, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The folder's causal LM in evaluation mode, without gradients. SettingError if it cannot be loaded."""
    model = load_causal_lm(folder, dtype)
    attend_in_slots(model)
    ready: nn.Module = model.to(device).eval().requires_grad_(False)
    return ready


def attend_in_slots(model: PreTrainedModel) -> None:
    """Set the model to our attention, if its attention can be replaced."""
    if getattr(model, "_supports_attention_backend", False):
        model.set_attn_implementation(NAME)


class Staged(NamedTuple):
    version: int
    adapter: str
    folder: Path
    module: nn.Module
    factors: Factors | None = None


def load_version(
    folder: Path, base: nn.Module, root: Path, device: torch.device, dtype: torch.dtype
) -> nn.Module:
    """A version's weights: whole ones from its folder, or the adapter there on `base`. `root` is the base's
    own folder. EngineError if they cannot be loaded, or are not weights of the same names and shapes."""
    if folder.resolve() == root.resolve():
        return base
    with _adapter_errors(folder):
        if (lora := lora_of(folder)) is not None:
            return adapted(base, pairs_of(folder), lora.scale)
    try:
        module = load_module(folder, device, dtype)
    except SettingError as error:
        raise EngineError(str(error)) from error
    theirs, ours = ({name: each.shape for name, each in m.named_parameters()} for m in (module, base))
    if theirs != ours:
        different = sorted(name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name))
        raise EngineError(f"The weights in {folder} do not fit the served model: {different[:3]} differ.")
    return module


def load_own(folder: Path, rows: RowAdapters, root: Path) -> Factors | None:
    """A personal adapter over a model; None if the folder is that of the base.

    EngineError if it cannot be loaded.
    """
    if folder.resolve() == root.resolve():
        return None
    with _adapter_errors(folder):
        if (lora := lora_of(folder)) is None:
            raise EngineError(f"{folder} holds no adapter: only adapters can be personal")
        return rows.fitted(pairs_of(folder), lora.scale)


@contextmanager
def _adapter_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, SafetensorError) as error:
        raise EngineError(f"The adapter in {folder} does not fit the served model: {error}") from error


def probed(
    staged: Staged, base: nn.Module, rows: RowAdapters, ids: Sequence[int], times: float
) -> list[float]:
    """Log-probs of ids[1:] under staged weights, their adapter scaled by `times`. 0 is the base."""
    lora, factors = lora_of(staged.folder), staged.factors
    if times == 1.0 or (lora is None and factors is None):
        with rows.rows([factors]):
            return score(staged.module, ids)
    if times == 0.0:
        return score(base, ids)
    if factors is None and lora is not None:
        factors = rows.fitted(pairs_of(staged.folder), lora.scale)
    with rows.rows([factors and factors.times(times)]):
        return score(rows.module, ids)


async def next_step(events: Events) -> Step:
    """The next step of a sequence. Raises what ended it."""
    event = await events.get()
    if isinstance(event, Exception):
        raise event
    return event


class Worker(threading.Thread):
    """Steps the runners until `end`. Actions posted from other threads run between two decode steps.

    A tick's events are kept by event loop: each loop is woken once a tick, for all its sequences.
    """

    def __init__(self, runners: tuple[ModelRunner, ...]) -> None:
        super().__init__(name="afterwit-engine", daemon=True)
        self._runners = runners
        self._events: dict[asyncio.AbstractEventLoop, list[tuple[Events, Any]]] = defaultdict(list)
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._going = True
        self._tick = 0

    def deliver(self, loop: asyncio.AbstractEventLoop, target: Events, event: Step | Exception) -> None:
        """Put an event into a queue of another thread's loop, after the tick."""
        self._events[loop].append((target, event))

    def post(self, action: Callable[[], object]) -> None:
        self._inbox.put(action)

    async def call(self, action: Callable[[], Done]) -> Done:
        """The result of `action`, which runs before the next decode step."""
        future: Future[Done] = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except Exception as error:  # for the caller, whatever it is
                future.set_exception(error)

        self.post(run)
        return await asyncio.wrap_future(future)

    def end(self, error: Exception) -> None:
        """End the thread, from an action; every running or waiting request gets `error`."""
        self._going = False
        self._fail(error)

    @torch.inference_mode()
    def run(self) -> None:
        while self._going:
            try:
                if all(runner.idle for runner in self._runners):
                    self._inbox.get()()
                while not self._inbox.empty():
                    self._inbox.get()()
                self._step()
            except Exception as error:  # no single request's fault, so no request can go on safely
                log.exception("the engine's step failed")
                self._fail(EngineError(f"The engine failed: {error}"))
            events, self._events = self._events, defaultdict(list)
            for loop, batch in events.items():
                with suppress(RuntimeError):  # the loop has closed, and its clients with it
                    loop.call_soon_threadsafe(_put, batch)

    def _step(self) -> None:
        """A tick of each runner. While one serves the foreground, background work alone steps rarely."""
        self._tick += 1
        foreground = [runner.has_foreground for runner in self._runners]
        decodes = any(runner.decodes for runner in self._runners)
        for runner, own in zip(self._runners, foreground, strict=True):
            if own or not any(foreground) or self._tick % BACKGROUND_EVERY == 0:
                runner.tick(self._tick, others_decode=decodes)

    def _fail(self, error: Exception) -> None:
        for runner in self._runners:
            runner.fail(error)


def _put(batch: list[tuple[Events, Any]]) -> None:
    for target, event in batch:
        target.put_nowait(event)
