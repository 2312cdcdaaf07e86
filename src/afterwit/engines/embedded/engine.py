"""The embedded engine: the port over a worker thread."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from afterwit.core.errors import EngineError, EngineUnavailable, SettingError
from afterwit.engines.embedded.batch_future import BatchFuture
from afterwit.engines.embedded.forward import score
from afterwit.engines.embedded.load import (
    check_attention,
    device_and_dtype,
    load_module,
    load_version,
    read_config,
    read_facts,
)
from afterwit.engines.embedded.runner import ModelRunner
from afterwit.engines.embedded.script import Script, scripted
from afterwit.engines.embedded.sequence import Deliver, ResponseSequence, check
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.embedded.worker import EventBuffer, Worker
from afterwit.engines.port import Facts, Generate, Step, Weights

Loader = Callable[[Path], nn.Module]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What the engine is doing, for metrics."""

    running: int
    """Responses that hold a slot."""
    waiting: int
    """Requests in line for one."""
    sampled: int
    """Tokens since the start."""


class EmbeddedEngine:
    """Implements `port.Engine`.

    Weights in memory: one copy while live is the base; base and live after the first swap; base, live and
    staged between `stage` and `promote` or `discard`, which is the peak: three copies, beside the keys and
    values. Versions that are adapters share with the base what no adapter moves (embeddings, head, norms);
    in half precision they share it all.

    A response that is under way at a swap goes on from its old keys and values with the new weights; each
    token's version is that of the weights whose logits it was drawn from.
    """

    def __init__(
        self,
        module: nn.Module,
        facts: Facts,
        settings: EmbeddedSettings,
        *,
        load: Loader,
        script: Script | None = None,
        seed: int | None = None,
    ) -> None:
        """`load` reads a staged version's folder. `seed` makes requests that have none reproducible."""
        self.facts = facts
        self._load = load
        self._script = script
        self._seeds = random.Random(seed)
        self._events = EventBuffer()
        runner = partial(
            ModelRunner,
            module,
            0,
            slots=settings.slots,
            context_length=facts.context_length,
            chunk=settings.prefill_chunk,
        )
        self._runners = {Weights.LIVE: runner(reserve=settings.slots // 4), Weights.BASE: runner(reserve=0)}
        self._worker = Worker(tuple(self._runners.values()), self._events)
        self._staged: tuple[int, nn.Module] | None = None
        self._open = True
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
        """The engine over a Hugging Face folder; SettingError, before anything runs, where it cannot be."""
        if settings.threads:
            torch.set_num_threads(settings.threads)
        facts = read_facts(folder, read_config(folder), settings)
        device, dtype = device_and_dtype(settings)
        try:
            module = load_module(folder, device, dtype)
        except EngineError as error:
            raise SettingError(str(error)) from error
        check_attention(module, facts.vocabulary)
        load = partial(load_version, base=module, device=device, dtype=dtype)
        return cls(module, facts, settings, load=load, script=script, seed=seed)

    @property
    def version(self) -> int:
        return self._runners[Weights.LIVE].version

    @property
    def counters(self) -> Counters:
        runners = self._runners.values()
        return Counters(
            running=sum(len(runner.running) for runner in runners),
            waiting=sum(len(runner.queue) for runner in runners),
            sampled=sum(runner.sampled for runner in runners),
        )

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """One Step a token. RequestError where the request does not fit, EngineError where the model fails.

        Close the generator (`contextlib.aclosing`) to cancel: its slot is free before the next decode step.
        """
        self._check_open()
        box: asyncio.Queue[Step | Exception] = asyncio.Queue()
        deliver = partial(self._events.put, asyncio.get_running_loop(), box)
        runner, sequence = self._runners[request.weights], self._stream(request, deliver)
        self._worker.post(partial(runner.add, sequence))
        try:
            while True:
                event = await box.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if event.ended:
                    return
        finally:
            self._worker.post(partial(runner.cancel, sequence))

    async def generate_together(self, requests: Sequence[Generate]) -> list[list[Step]]:
        """Every response whole, from one batch that starts at once: alone in the engine, seeded requests give
        the same ids and log-probs each time. Raises what `generate` raises, the first such error.
        """
        self._check_open()
        batch = BatchFuture(len(requests))
        sequences = [
            (self._runners[request.weights], self._stream(request, batch.deliver(place)))
            for place, request in enumerate(requests)
        ]

        def add() -> None:
            for runner, sequence in sequences:
                runner.add(sequence)

        self._worker.post(add)
        return await asyncio.wrap_future(batch.done)

    async def stage(self, version: int, folder: Path) -> None:
        """Load a version beside the live one, in another thread; decoding goes on meanwhile."""
        self._check_open()
        self._staged = None
        module = await asyncio.to_thread(self._load, folder)
        _check_shapes(module, self._runners[Weights.BASE].module, folder)
        self._staged = version, module

    async def probe(self, ids: Sequence[int]) -> list[float]:
        module = self._staging()[1]
        try:
            return await asyncio.to_thread(score, module, tuple(ids))
        except Exception as error:
            raise EngineError(f"The staged weights cannot be probed: {error}") from error

    async def promote(self) -> None:
        self._check_open()
        version, module = self._staging()
        await asyncio.wrap_future(self._worker.call(partial(self._route, version, module)))
        self._staged = None

    async def discard(self) -> None:
        self._staged = None

    async def close(self) -> None:
        """Whoever is still served gets EngineUnavailable. Closing twice is once."""
        if not self._open:
            return
        self._open = False
        self._staged = None
        await asyncio.wrap_future(self._worker.stop(EngineUnavailable("The engine was closed.")))
        await asyncio.to_thread(self._worker.join)

    def _route(self, version: int, module: nn.Module) -> None:
        """In the worker's thread, between two decode steps."""
        live = self._runners[Weights.LIVE]
        live.module, live.version = module, version

    def _stream(self, request: Generate, deliver: Deliver) -> ResponseSequence:
        check(request, self.facts)
        return ResponseSequence(
            request,
            facts=self.facts,
            scripted=scripted(self._script, request.prompt_ids, self.facts.end_ids),
            seed=self._seeds.getrandbits(63),
            deliver=deliver,
        )

    def _staging(self) -> tuple[int, nn.Module]:
        if self._staged is None:
            raise EngineError("No weights are staged.")
        return self._staged

    def _check_open(self) -> None:
        if not (self._open and self._worker.is_alive()):
            raise EngineUnavailable("The engine was closed.")


def _check_shapes(module: nn.Module, base: nn.Module, folder: Path) -> None:
    """EngineError unless both have the same weights by name and shape."""
    theirs, ours = (
        {name: tuple(weight.shape) for name, weight in m.named_parameters()} for m in (module, base)
    )
    if theirs != ours:
        different = sorted(name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name))
        raise EngineError(f"The weights in {folder} do not fit the served model: {different[:3]} differ.")
