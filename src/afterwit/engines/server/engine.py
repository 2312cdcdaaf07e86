"""The engine port over a server: a response outlives a swap of weights, and a restart of the server."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path

from tokenizers import Tokenizer

from afterwit.adapters import SHARED
from afterwit.engines.model_files import facts_of, tokenizer_of
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
from afterwit.engines.server.client import ServerClient, answered, gathered, gone
from afterwit.engines.server.inspect import Inspect, dtype_of, vocabulary_of
from afterwit.engines.server.response import ServedResponse
from afterwit.engines.server.server import Server
from afterwit.engines.server.settings import ServerSettings, SglangSettings, VllmSettings
from afterwit.engines.server.swaps import (
    SWAP,
    AdapterSwap,
    Lease,
    Proof,
    RequestGate,
    WholeSwap,
    is_ours,
    proof_ids,
    proof_with,
)
from afterwit.errors import AfterwitError, EngineError, EngineUnavailable, SettingError

SCORED_AT_ONCE = 8
"""Concurrent calls of one `score`. A server batches several prompts, while people's requests wait."""
MOST_INTERRUPTIONS = 2
"""A request that brings its server down must not do so for ever."""
WATCH = "watch"
"""The watch's name at the gate."""

log = logging.getLogger(__name__)


async def open_server(
    folder: Path, settings: VllmSettings | SglangSettings, inspect: Inspect, *, takes_weights: bool
) -> ServerEngine:
    """The engine over the server of `engine.url`, ready.

    SettingError if the server does not fit the model or lacks a flag; NobodyAnswers. Without `takes_weights`
    it may lack the flags that only new weights need.
    """
    swap = settings.swap if takes_weights else None
    (url,) = settings.urls
    client = ServerClient(url, key=settings.key(os.environ), silence_s=settings.silence_s)
    try:
        await answered(client, label=settings.label, patience_s=settings.patience_s)
        fit = await inspect(client, folder, swap)
        reported = fit.dtype if settings.dtype == "auto" else None
        facts = await asyncio.to_thread(
            facts_of,
            folder,
            kind=settings.kind,
            context_length=fit.context_length,
            vocabulary=vocabulary_of(folder),
            dtype=reported or dtype_of(folder, settings),
        )
        return await ServerEngine.open(
            fit.server, folder, settings, facts=facts, capabilities=fit.capabilities
        )
    except EngineError as error:
        await client.close()
        raise SettingError(f"the {settings.label} server at {client.url} cannot be used: {error}") from error
    except BaseException:
        await client.close()
        raise


class ServerEngine:
    """Implements `port.Engine`. Make it with `open`, inside the event loop that uses it.

    A request waits at the gate while the server is away or loads new weights, `patience_s` at most. An
    interrupted response goes on from its ids so far, with the weights that are live then.
    """

    reduced: None = None

    def __init__(
        self,
        server: Server,
        base: Path,
        settings: ServerSettings,
        *,
        facts: Facts,
        capabilities: Capabilities,
        proof: Proof,
    ) -> None:
        self.facts = facts
        self.capabilities = capabilities
        self.proof = proof
        """Log-probs of some ids by its base weights."""
        self._server, self._patience_s = server, settings.patience_s
        self._base = base
        self._gate = RequestGate()
        self._watch_s, self._reported = settings.watch_s, asyncio.Event()
        self._swap: AdapterSwap | WholeSwap
        if settings.swap == "adapters":
            self._swap = AdapterSwap(server, base, proof=proof, dtype=facts.dtype)
        else:
            self._swap = WholeSwap(server, base, self._gate, proof=proof, dtype=facts.dtype, lost=self._lost)
        self._closed = False
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def open(
        cls,
        server: Server,
        base: Path,
        settings: ServerSettings,
        *,
        facts: Facts,
        capabilities: Capabilities,
    ) -> ServerEngine:
        """The engine over a server that fits the model in `base`, beginning with its base weights.

        A server that kept the weights of an earlier run loads the base's first.
        """
        base = await asyncio.to_thread(base.resolve)
        if is_ours(await server.check()):
            await server.load_weights(base, "base")
        ids = proof_ids(facts.vocabulary)
        proof = proof_with(None, ids, 1.0, await server.score(ids, None))
        return cls(server, base, settings, facts=facts, capabilities=capabilities, proof=proof)

    @property
    def version(self) -> int:
        return self._swap.version

    def live(self, adapter: str) -> int | None:
        return self._swap.live(adapter)

    @property
    def fault(self) -> str | None:
        return "The engine was closed." if self._closed else self._gate.reason

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """Steps as the server streams them. Closing the generator ends the response there too."""
        self._check_open()
        check_fits(request, self.facts)
        response, interruptions = self.begun(request, self.facts), Interruptions(self._check_open)
        while True:
            await self._gate.passed(self._patience_s)
            with interruptions.tolerated():
                async with aclosing(self.rest(response, request.weights, request.adapter)) as steps:
                    async for step in steps:
                        yield step
                        if step.ended:
                            return

    def begun(self, request: Generate, facts: Facts) -> ServedResponse:
        """An empty response, for `rest` of any server of the model."""
        return ServedResponse(request, facts, self._text_of)

    async def rest(
        self, response: ServedResponse, weights: Weights, adapter: str = SHARED
    ) -> AsyncGenerator[Step, None]:
        """The rest of a response, up to its end or until the server loads new weights.

        Does not wait at the gate: call it only without a `fault`. EngineUnavailable if the server breaks off.
        """
        async with self._watched():
            with self._swap.lease(weights, adapter) as lease:
                async with aclosing(self._steps(response, lease)) as steps:
                    async for step in steps:
                        yield step

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return tokenizer_of(self._base)

    def _text_of(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    async def _steps(self, response: ServedResponse, lease: Lease) -> AsyncGenerator[Step, None]:
        """The rest of a response, up to its end or until the lease is cut."""
        version = lease.of.version
        if (forced := response.forced(version)) is not None:
            yield forced
        try:
            turns = True
            while turns:
                request = response.rest(lease.of.name)
                async with aclosing(lease.chunks(self._server.sample(request))) as chunks:
                    async for chunk in chunks:
                        if (step := response.take(chunk, version)) is not None:
                            yield step
                        if response.turns:
                            break
                turns = response.turns and not lease.cut
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise EngineError("the server answered in an unknown form") from error

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """One call per row, several at once, all by the weights that are live at the start."""
        self._check_open()
        check_scores(rows, top, self.facts, self.capabilities)
        await self._gate.passed(self._patience_s)
        with self._swap.lease(weights, SHARED) as lease:
            calls = [partial(self._scored, row, top, lease) for row in rows]
            async with self._watched():
                scored = await gathered(calls, SCORED_AT_ONCE)
            if lease.cut:
                raise EngineUnavailable("the server took new weights while rows were scored")
        return scored

    async def _scored(self, row: Score, top: int, lease: Lease) -> Scored:
        ids = (*row.prompt_ids, *row.response_ids)
        found = await self._server.top_logprobs(ids, lease.of.name, first=len(row.prompt_ids), top=top)
        return Scored(
            version=lease.of.version,
            logprobs=tuple(each.sampled for each in found),
            top_ids=tuple(each.ids for each in found),
            top_logprobs=tuple(each.logprobs for each in found),
        )

    async def stage(self, version: int, folder: Path, *, adapter: str = SHARED) -> None:
        async with self._watched():
            await self._swap.stage(version, await asyncio.to_thread(folder.resolve), adapter)

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        async with self._watched():
            return await self._swap.probe(ids, times)

    async def promote(self) -> None:
        async with self._watched():
            await self._swap.promote()

    async def discard(self) -> None:
        async with self._watched():
            await self._swap.discard()

    async def unload(self, adapter: str) -> None:
        await self._swap.unload(adapter)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching
        for part in (WATCH, SWAP):
            self._gate.open(part)
        await self._swap.close()
        await self._server.close()

    async def _check(self) -> None:
        expected = self._swap.label
        found = await self._server.check()
        if expected is None or expected != self._swap.label or self._gate.closed_by(WATCH):
            return
        if found not in (None, expected):
            raise EngineUnavailable(f"the server was restarted: its weights are {found}, not {expected}")

    def _lost(self, error: Exception) -> None:
        """Close the gate until the server is seen to be right."""
        if not self._gate.closed_by(WATCH):
            log.warning("the engine's server is away: %s", error)
        self._gate.close(WATCH, str(error))
        self._reported.set()

    async def _watch(self) -> None:
        """Check the server's health, at once when a fault is reported."""
        while True:
            try:
                await self._look()
            except AfterwitError as error:
                self._gate.close(WATCH, str(error))
            except Exception as error:  # a fault of our own must not end the watch
                log.exception("watching the engine's server failed")
                self._gate.close(WATCH, f"watching the server failed: {type(error).__name__} (see the log)")
            self._reported.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch_s):
                    await self._reported.wait()

    async def _look(self) -> None:
        try:
            await self._check()
        except EngineUnavailable as error:
            self._lost(error)
            return
        if self._gate.closed_by(WATCH):
            await self._swap.recover()
            self._gate.open(WATCH)
            log.warning("the engine's server is back")

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Around calls of the server: one that is away or dying is reported, and raises EngineUnavailable."""
        self._check_open()
        try:
            yield
        except EngineUnavailable as error:
            self._check_open()
            self._lost(error)
            raise
        except EngineError as error:
            if (away := await gone(error, self._server.check)) is None:
                raise
            self._lost(away)
            raise away from error

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnavailable("The engine was closed.")


class Interruptions:
    """Counts the interruptions of one request."""

    def __init__(self, check_open: Callable[[], None]) -> None:
        """`check_open` raises if the engine itself was closed: then nothing is tried again."""
        self._check_open = check_open
        self._count = 0

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Around one attempt, in a loop. Ends it at EngineUnavailable; raises that after too many."""
        try:
            yield
        except EngineUnavailable:
            self._check_open()
            self._count += 1
            if self._count > MOST_INTERRUPTIONS:
                raise
