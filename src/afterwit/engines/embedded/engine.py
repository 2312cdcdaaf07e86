"""The embedded engine: the port over a worker thread."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from afterwit.adapters import SHARED
from afterwit.chat_format.folder import end_ids
from afterwit.engines.embedded.cache import budget_of
from afterwit.engines.embedded.decoding import IN_PLACE
from afterwit.engines.embedded.grammar import Grammars, Guide
from afterwit.engines.embedded.load import (
    check_attention,
    context_of,
    device_and_dtype,
    load_module,
    load_own,
    load_version,
    pace_of,
    reads_in_place,
    refusal,
)
from afterwit.engines.embedded.runner import EventBuffer, Runners, Staging, Worker
from afterwit.engines.embedded.scoring import score_rows
from afterwit.engines.embedded.sequence import Deliver, ResponseSequence
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.fingerprint import fingerprint
from afterwit.engines.port import (
    Capabilities,
    Constraint,
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


def facts_of(folder: Path, config: Mapping[str, Any], settings: EmbeddedSettings, *, dtype: str) -> Facts:
    """The engine's facts; `config` is the text model's. SettingError if it cannot serve this model."""
    context_length = context_of(config, settings.context_length)
    if reason := refusal(config, context_length):
        raise SettingError(f"{folder} cannot be served by the embedded engine: {reason}")
    path = folder / "tokenizer.json"
    identity = fingerprint(folder)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise SettingError(f"{path} cannot be read: {error}") from error
    return Facts(
        name=settings.kind,
        model=folder.resolve().name,
        context_length=context_length,
        vocabulary=config["vocab_size"],
        end_ids=end_ids(folder, tokenizer.token_to_id),
        dtype=dtype,
        fingerprint=identity,
    )


Script = Callable[[tuple[int, ...]], Sequence[int] | None]
"""Takes a prompt's ids. Returns the ids of its whole response, or None to sample it.

An end id is added if the response has none. Scripted ids are not flagged as forced: they count as sampled,
which is what tests want.
"""


def scripted(script: Script | None, prompt_ids: tuple[int, ...], end_ids: frozenset[int]) -> tuple[int, ...]:
    """The ids to use instead of sampled ones, end id included; empty if the response is sampled."""
    ids = script(prompt_ids) if script else None
    if ids is None:
        return ()
    ended = bool(ids) and ids[-1] in end_ids
    return (*ids, *(() if ended or not end_ids else (min(end_ids),)))


class BatchFuture:
    """`done` is set once the last response has ended: to the steps of each, in order, or to the first error.

    It wakes its waiter once, not once per token.
    """

    def __init__(self, responses: int) -> None:
        self.done: Future[list[list[Step]]] = Future()
        self._steps: list[list[Step]] = [[] for _ in range(responses)]
        self._running = responses
        self._error: Exception | None = None
        if not responses:
            self.done.set_result([])

    def deliver(self, index: int) -> Deliver:
        """What takes the steps of one response, in the worker's thread."""

        def take(event: Step | Exception) -> None:
            if isinstance(event, Exception):
                self._error = self._error or event
                self._end()
                return
            self._steps[index].append(event)
            if event.ended:
                self._end()

        return take

    def _end(self) -> None:
        self._running -= 1
        if self._running or self.done.cancelled():
            return
        if self._error is not None:
            self.done.set_exception(self._error)
        else:
            self.done.set_result(self._steps)
