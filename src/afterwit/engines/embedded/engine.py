"""The embedded engine: the port over a worker thread."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from afterwit.core.adapters import SHARED
from afterwit.core.errors import EngineError, EngineUnavailable, RequestRefused, SettingError
from afterwit.engines.embedded.cache.budget import budget_of
from afterwit.engines.embedded.facts import CAPABILITIES, facts_of
from afterwit.engines.embedded.grammar import Grammars
from afterwit.engines.embedded.guide import Guide
from afterwit.engines.embedded.load import (
    check_attention,
    device_and_dtype,
    load_module,
    load_own,
    load_version,
    pace_of,
    reads_in_place,
)
from afterwit.engines.embedded.scheduling.batch_future import BatchFuture
from afterwit.engines.embedded.scheduling.decoding import IN_PLACE
from afterwit.engines.embedded.scheduling.runners import Runners
from afterwit.engines.embedded.scheduling.sequence import Deliver, ResponseSequence
from afterwit.engines.embedded.scheduling.worker import EventBuffer, Worker
from afterwit.engines.embedded.scoring import score_rows
from afterwit.engines.embedded.script import Script, scripted
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.embedded.staging import Staging
from afterwit.engines.fit import check_fits, check_scores
from afterwit.engines.port import Constraint, Facts, Generate, Score, Scored, Step, Weights
from afterwit.weights.load import read_config


class EmbeddedEngine:
    """Implements `port.Engine`.

    Weights in memory: one copy while live is the base; base and live after the first swap; base, live and
    staged between `stage` and `promote` or `discard`. The peak is three copies, beside the keys and values.
    Versions that are adapters share with the base what no adapter moves (embeddings, head, norms); in half
    precision they share it all. Adapters of somebody's own are factors alone, beside the base's weights: a
    batch is computed with each row's own.

    A response that is under way at a swap goes on with the new weights over its old keys and values. Each
    token's version is that of the weights whose logits it was drawn from; the step's `cache_version` is the
    oldest version in its cache. A request that begins after the swap finds nothing that older weights read.
    """

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
        """Without `grammars` it follows no constraint. `seed` makes requests that have none reproducible."""
        self.facts = facts
        self.capabilities = replace(
            CAPABILITIES,
            constraint=grammars is not None,
            scored_ids=facts.vocabulary,
            own_adapters=staging.takes_own,
        )
        self.grammars = grammars
        """What follows constraints; None: nothing does."""
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
        """The engine over a Hugging Face folder. SettingError, before anything runs, if it cannot be."""
        if settings.threads:
            torch.set_num_threads(settings.threads)
        device, dtype = device_and_dtype(settings)
        config = read_config(folder).get_text_config()
        facts = facts_of(folder, config.to_dict(), settings, dtype=str(dtype).removeprefix("torch."))
        try:
            module = load_module(folder, device, dtype)
        except EngineError as error:
            raise SettingError(str(error)) from error
        check_attention(module, facts.vocabulary)
        runners = Runners(
            module,
            slots=settings.slots,
            context_length=facts.context_length,
            pace=pace_of(module, config, settings, device),
            kept_bytes=budget_of(settings, device),
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
    def reduced(self) -> None:
        """Nothing of it can be out alone."""

    @property
    def fault(self) -> str | None:
        return None if self._open and self._worker.is_alive() else "The engine was closed."

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """One Step per token.

        Close the generator (`contextlib.aclosing`) to cancel: its slot is free before the next decode step.
        """
        self._check_open()
        events: asyncio.Queue[Step | Exception] = asyncio.Queue()
        deliver = partial(self._events.put, asyncio.get_running_loop(), events)
        runner, sequence = self._runners.of(request), await self._sequence(request, deliver)
        self._worker.post(partial(runner.add, sequence))
        try:
            while True:
                event = await events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if event.ended:
                    return
        finally:
            self._worker.post(partial(runner.cancel, sequence))

    async def generate_together(self, requests: Sequence[Generate]) -> list[list[Step]]:
        """Every response whole, from one batch that starts at once. Raises the first error of `generate`.

        If nobody else uses the engine, and it keeps nothing (`keep_gib` = 0), seeded requests without
        constraints give the same ids and log-probs each time, to the last bit.
        """
        self._check_open()
        batch = BatchFuture(len(requests))
        sequences = [
            (self._runners.of(request), await self._sequence(request, batch.deliver(index)))
            for index, request in enumerate(requests)
        ]

        def add() -> None:
            for runner, sequence in sequences:
                runner.add(sequence)

        self._worker.post(add)
        return await asyncio.wrap_future(batch.done)

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """In another thread, one call at a time; decoding goes on meanwhile.

        A call is scored by the weights that were live when its turn came.
        """
        self._check_open()
        check_scores(rows, top, self.facts, self.capabilities)
        async with self._scoring:
            module, version = await self._served(weights)
            try:
                return await asyncio.to_thread(score_rows, module, version, tuple(rows), top=top)
            except Exception as error:  # a model is foreign code and may raise anything
                raise EngineError(f"The rows cannot be scored: {error}") from error

    async def _served(self, weights: Weights) -> tuple[Any, int]:
        """The module and its version, read in the worker's thread: there they change together."""
        runner, found = self._runners.whole(weights), list[tuple[Any, int]]()
        await asyncio.wrap_future(self._worker.call(lambda: found.append((runner.module, runner.version))))
        return found[0]

    async def stage(self, version: int, folder: Path, *, adapter: str = SHARED) -> None:
        """Load a version in another thread; decoding goes on meanwhile."""
        self._check_open()
        await self._staging.stage(version, folder, adapter)

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        return await self._staging.probe(ids, times)

    async def promote(self) -> None:
        self._check_open()
        await asyncio.wrap_future(self._worker.call(partial(self._runners.promote, self._staging.staged)))
        self._staging.discard()

    async def unload(self, adapter: str) -> None:
        self._check_open()
        await asyncio.wrap_future(self._worker.call(partial(self._runners.unload, adapter)))

    async def discard(self) -> None:
        self._staging.discard()

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._staging.discard()
        await asyncio.wrap_future(self._worker.stop(EngineUnavailable("The engine was closed.")))
        await asyncio.to_thread(self._worker.join)
        if self.grammars is not None:
            self.grammars.close()

    async def _sequence(self, request: Generate, deliver: Deliver) -> ResponseSequence:
        check_fits(request, self.facts)
        given = scripted(self._script, request.prompt_ids, self.facts.end_ids)
        seed = self._seeds.getrandbits(63)
        guide = None if given or request.constraint is None else await self._guide(request.constraint)
        self._check_open()
        return ResponseSequence(
            request, facts=self.facts, scripted=given, seed=seed, deliver=deliver, guide=guide
        )

    async def _guide(self, constraint: Constraint) -> Guide:
        """What follows a constraint. Its schema is compiled in a thread, so that nobody else waits."""
        if self.grammars is None:
            raise RequestRefused("This engine follows no constraint.", field="constraint")
        make = partial(Guide, constraint, self.grammars)
        return await asyncio.get_running_loop().run_in_executor(self.grammars.compilers, make)

    def _check_open(self) -> None:
        if not (self._open and self._worker.is_alive()):
            raise EngineUnavailable("The engine was closed.")
