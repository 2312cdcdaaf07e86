"""The embedded engine: the port over a worker thread."""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from afterwit.adapters import SHARED
from afterwit.engines.embedded.cache import budget_of
from afterwit.engines.embedded.decoding import IN_PLACE, runs_now
from afterwit.engines.embedded.grammar import Grammars, Guide
from afterwit.engines.embedded.load import (
    Staging,
    check_attention,
    context_of,
    device_and_dtype,
    load_module,
    load_own,
    load_version,
    prefill_budget,
    reads_in_place,
    refusal,
)
from afterwit.engines.embedded.runner import ModelRunner, Runners
from afterwit.engines.embedded.scoring import score_rows
from afterwit.engines.embedded.sequence import ResponseSequence
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.model_files import facts_of
from afterwit.engines.port import (
    Capabilities,
    Facts,
    Generate,
    Score,
    Scored,
    Step,
    Weights,
    check_fits,
    check_scores,
)
from afterwit.errors import EngineError, EngineUnavailable, RequestRefused, SettingError
from afterwit.turn import Basis
from afterwit.weights.load import read_config

CAPABILITIES = Capabilities(
    basis=Basis.PROCESSED,
    base_weights=True,
    forced_prefix=True,
    whole_weights=True,
    adapters=True,
    constraint=True,
    top_logprobs=20,
    scored_tau=True,
)

Script = Callable[[tuple[int, ...]], Sequence[int] | None]
"""A prompt's ids to the ids of its whole response, or None to sample it. For tests.

An end id is added if the response has none. Scripted ids are not flagged as forced: they count as sampled.
"""
Events = asyncio.Queue[Step | Exception]

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
        runners: Runners,
        staging: Staging,
        facts: Facts,
        *,
        grammars: Grammars | None = None,
        script: Script | None = None,
        seed: int | None = None,
    ) -> None:
        """Without `grammars` no constraint is supported. `seed` makes requests without one reproducible."""
        self.facts = facts
        self.capabilities = replace(
            CAPABILITIES,
            constraint=grammars is not None,
            scored_ids=facts.vocabulary,
            own_adapters=staging.takes_own,
        )
        self.grammars = grammars
        self._runners = runners
        self._staging = staging
        self._script = script
        self._seeds = random.Random(seed)
        self._events = EventBuffer()
        self._worker = Worker(tuple(runners), self._events)
        self._open = True
        self._scoring = asyncio.Lock()
        self._worker.start()

    @classmethod
    def load(
        cls,
        folder: Path,
        settings: EmbeddedSettings,
        *,
        script: Script | None = None,
        seed: int | None = None,
    ) -> EmbeddedEngine:
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
        try:
            module = load_module(folder, device, dtype)
        except EngineError as error:
            raise SettingError(str(error)) from error
        check_attention(module, facts.vocabulary)
        runners = Runners(
            module,
            slots=settings.slots,
            context_length=facts.context_length,
            budget=prefill_budget(module, config, settings, device),
            cache_bytes=budget_of(settings, device),
            in_place=IN_PLACE if reads_in_place(module, facts.vocabulary) else None,
        )
        staging = Staging(
            module,
            runners.rows,
            load=partial(load_version, base=module, root=folder, device=device, dtype=dtype),
            own=partial(load_own, base=folder),
        )
        return cls(runners, staging, facts, grammars=Grammars(folder, facts), script=script, seed=seed)

    @property
    def version(self) -> int:
        return self._runners.whole(Weights.LIVE).version

    def live(self, adapter: str) -> int | None:
        return self._runners.live(adapter)

    @property
    def fault(self) -> str | None:
        return None if self._open and self._worker.is_alive() else "The engine was closed."

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """One Step per token.

        Close the generator (`contextlib.aclosing`) to cancel: its slot is free before the next decode step.
        """
        self._check_open()
        sequence, events = await self._sequence(request)
        runner = self._runners.of(request)
        self._worker.post(partial(runner.add, sequence))
        try:
            while True:
                step = await _next(events)
                yield step
                if step.ended:
                    return
        finally:
            self._worker.post(partial(runner.cancel, sequence))

    async def generate_together(self, requests: Sequence[Generate]) -> list[list[Step]]:
        """All responses, from one batch that starts at once. Raises the first error of `generate`.

        If no one else uses the engine, and `prefix_cache_gib` is 0, seeded requests without constraints give
        the same ids and log-probs each time, to the last bit.
        """
        self._check_open()
        started = [(self._runners.of(request), *await self._sequence(request)) for request in requests]

        def add() -> None:
            for runner, sequence, _ in started:
                runner.add(sequence)

        self._worker.post(add)
        responses: list[list[Step]] = []
        try:
            for _, _, events in started:
                responses.append([await _next(events)])
                while not responses[-1][-1].ended:
                    responses[-1].append(await _next(events))
        finally:
            for runner, sequence, _ in started:
                self._worker.post(partial(runner.cancel, sequence))
        return responses

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """In another thread, one call at a time, while the worker decodes.

        A call is scored by the weights that are live when its turn comes.
        """
        self._check_open()
        check_scores(rows, top, self.facts, self.capabilities)
        runner, served = self._runners.whole(weights), list[tuple[Any, int]]()
        async with self._scoring:
            # read in the worker's thread: there they change together
            await self._in_worker(lambda: served.append((runner.module, runner.version)))
            module, version = served[0]
            try:
                return await asyncio.to_thread(score_rows, module, version, tuple(rows), top=top)
            except Exception as error:  # a model is foreign code and may raise anything
                raise EngineError(f"The rows cannot be scored: {error}") from error

    async def stage(self, version: int, folder: Path, *, adapter: str = SHARED) -> None:
        self._check_open()
        await self._staging.stage(version, folder, adapter)

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        return await self._staging.probe(ids, times)

    async def promote(self) -> None:
        self._check_open()
        await self._in_worker(partial(self._runners.promote, self._staging.staged))
        self._staging.discard()

    async def unload(self, adapter: str) -> None:
        self._check_open()
        await self._in_worker(partial(self._runners.unload, adapter))

    async def discard(self) -> None:
        self._staging.discard()

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._staging.discard()
        await self._in_worker(partial(self._worker.end, EngineUnavailable("The engine was closed.")))
        await asyncio.to_thread(self._worker.join)
        if self.grammars is not None:
            self.grammars.close()

    async def _in_worker(self, action: Callable[[], None]) -> None:
        await asyncio.wrap_future(self._worker.call(action))

    async def _sequence(self, request: Generate) -> tuple[ResponseSequence, Events]:
        """A request's sequence, and the queue that gets its steps. A schema is compiled in another thread."""
        check_fits(request, self.facts)
        given = scripted(self._script, request.prompt_ids, self.facts.end_ids)
        seed = self._seeds.getrandbits(63)
        loop, guide = asyncio.get_running_loop(), None
        if request.constraint is not None and not given:
            if self.grammars is None:
                raise RequestRefused("This engine follows no constraint.", field="constraint")
            make = partial(Guide, request.constraint, self.grammars)
            guide = await loop.run_in_executor(self.grammars.compilers, make)
        self._check_open()
        events: Events = asyncio.Queue()
        deliver = partial(self._events.put, loop, events)
        sequence = ResponseSequence(
            request, facts=self.facts, scripted=given, seed=seed, deliver=deliver, guide=guide
        )
        return sequence, events

    def _check_open(self) -> None:
        if not (self._open and self._worker.is_alive()):
            raise EngineUnavailable("The engine was closed.")


async def _next(events: Events) -> Step:
    event = await events.get()
    if isinstance(event, Exception):
        raise event
    return event


def scripted(script: Script | None, prompt_ids: tuple[int, ...], end_ids: frozenset[int]) -> tuple[int, ...]:
    """The scripted ids, end id included; empty if the response is sampled."""
    ids = script(prompt_ids) if script else None
    if ids is None:
        return ()
    ended = bool(ids) and ids[-1] in end_ids
    return (*ids, *(() if ended or not end_ids else (min(end_ids),)))


class EventBuffer:
    """A tick's events by event loop: each loop is woken once a tick, for all its sequences."""

    def __init__(self) -> None:
        self._events: dict[asyncio.AbstractEventLoop, list[tuple[Events, Any]]] = defaultdict(list)

    def put(self, loop: asyncio.AbstractEventLoop, target: Events, event: Step | Exception) -> None:
        self._events[loop].append((target, event))

    def flush(self) -> None:
        events, self._events = self._events, defaultdict(list)
        for loop, batch in events.items():
            try:
                loop.call_soon_threadsafe(_deliver, batch)
            except RuntimeError:  # the loop has closed, and its clients with it
                log.debug("a client's event loop closed before its response ended")


def _deliver(batch: list[tuple[Events, Any]]) -> None:
    for target, event in batch:
        target.put_nowait(event)


class Worker(threading.Thread):
    """Steps the runners until `end`. Actions posted from other threads run between two decode steps."""

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
        """As `post`. The future is done once the action has run."""
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

    def end(self, error: Exception) -> None:
        """End the thread, from an action; every running or waiting request gets `error`."""
        self._going = False
        self._fail(error)

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
        """Run posted actions; sleep while there is nothing else to do."""
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
