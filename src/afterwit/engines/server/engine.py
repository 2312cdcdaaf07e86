"""The engine port over a server: a response outlives a swap of weights, and a restart of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path

from tokenizers import Tokenizer

from afterwit.adapters import SHARED
from afterwit.engines.kinds import check_fits, check_scores
from afterwit.engines.port import Capabilities, Facts, Generate, Score, Scored, Step, Weights
from afterwit.engines.server.client import Door, gathered
from afterwit.engines.server.inspect import gone, tokenizer_of
from afterwit.engines.server.response import ServedResponse
from afterwit.engines.server.server import Server
from afterwit.engines.server.settings import ServerSettings
from afterwit.engines.server.swaps import (
    AdapterSwap,
    Lease,
    Proof,
    Swap,
    WholeSwap,
    is_ours,
    proof_with,
    sample_ids,
)
from afterwit.errors import AfterwitError, EngineError, EngineUnavailable

SCORED_AT_ONCE = 8
"""Calls of one `score` at one time. A server reads several prompts together, while people's requests wait."""


class ServerEngine:
    """Implements `port.Engine`. Make it with `open`, inside the event loop that uses it.

    A request waits at the door while the server is away or takes new weights, `patience_s` at most. A
    response that is broken off goes on from what it has said, with the weights that are live then.
    """

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
        """What its base weights say of some ids."""
        self._server, self._patience_s = server, settings.patience_s
        self._base = base
        self._door = Door()
        self._watch = Watch(self._door, check=self._check, recover=self._recover, every_s=settings.watch_s)
        self._swap: Swap
        if settings.swap == "adapters":
            self._swap = AdapterSwap(server, base, proof=proof, dtype=facts.dtype)
        else:
            self._swap = WholeSwap(
                server, base, self._door, proof=proof, dtype=facts.dtype, lost=self._watch.lost
            )
        self._closed = False
        self._watching = asyncio.create_task(self._watch.run())

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
        """The engine over a server that was found fit for the model in `base`, from its base weights on.

        A server that kept the weights of an earlier run reads the base's first.
        """
        base = await asyncio.to_thread(base.resolve)
        if is_ours(await server.check()):
            await server.load_weights(base, "base")
        ids = sample_ids(facts.vocabulary)
        proof = proof_with(None, ids, 1.0, await server.score(ids, None))
        return cls(server, base, settings, facts=facts, capabilities=capabilities, proof=proof)

    @property
    def version(self) -> int:
        return self._swap.version

    def live(self, adapter: str) -> int | None:
        return self._swap.live(adapter)

    @property
    def reduced(self) -> None:
        """There is one server."""

    @property
    def fault(self) -> str | None:
        return "The engine was closed." if self._closed else self._door.reason

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """Steps as the server streams them. Close the generator to end the response there too."""
        self._check_open()
        check_fits(request, self.facts)
        response, interruptions = self.begun(request, self.facts), Interruptions(self._check_open)
        while True:
            await self._door.passed(self._patience_s)
            with interruptions.tolerated():
                async with aclosing(self.rest(response, request.weights, request.adapter)) as steps:
                    async for step in steps:
                        yield step
                        if step.ended:
                            return

    def begun(self, request: Generate, facts: Facts) -> ServedResponse:
        """A response that has said nothing, for `rest` of any server of the model."""
        return ServedResponse(request, facts, self._text_of)

    async def rest(
        self, response: ServedResponse, weights: Weights, adapter: str = SHARED
    ) -> AsyncGenerator[Step, None]:
        """What is left of a response, up to its end or until the server takes new weights.

        It waits for nothing: ask only without a `fault`. EngineUnavailable if the server breaks off.
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
        """Read for responses that have a form: their marks are texts."""
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
                ask = response.rest(lease.of.name)
                async with aclosing(lease.pieces(self._server.sample(ask))) as pieces:
                    async for piece in pieces:
                        if (step := response.take(piece, version)) is not None:
                            yield step
                        if response.turns:
                            break
                turns = response.turns and not lease.cut
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise EngineError("the server answered in a form that is not known here") from error

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """One call a row, several at one time, all by the weights that are live at the start."""
        self._check_open()
        check_scores(rows, top, self.facts, self.capabilities)
        await self._door.passed(self._patience_s)
        with self._swap.lease(weights, SHARED) as lease:
            calls = [partial(self._scored, row, top, lease) for row in rows]
            async with self._watched():
                scored = await gathered(calls, SCORED_AT_ONCE)
            if lease.cut:
                raise EngineUnavailable("the server took new weights while rows were scored")
        return scored

    async def _scored(self, row: Score, top: int, lease: Lease) -> Scored:
        ids = (*row.prompt_ids, *row.response_ids)
        places = await self._server.places(ids, lease.of.name, first=len(row.prompt_ids), top=top)
        return Scored(
            version=lease.of.version,
            logprobs=tuple(place.logprob for place in places),
            top_ids=tuple(place.top_ids for place in places),
            top_logprobs=tuple(place.top_logprobs for place in places),
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
        for who in ("watch", "swap"):
            self._door.open(who)
        await self._swap.close()
        await self._server.close()

    async def _check(self) -> None:
        expected = self._swap.label
        said = await self._server.check()
        if expected is None or expected != self._swap.label or self._door.closed_by(WHO):
            return
        if said not in (None, expected):
            raise EngineUnavailable(f"the server was started anew: its weights are {said}, not {expected}")

    async def _recover(self) -> None:
        await self._swap.recover()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Around what is asked of the server: if it is away, or dying, EngineUnavailable, and it is said."""
        self._check_open()
        try:
            yield
        except EngineUnavailable as error:
            self._check_open()
            self._watch.lost(error)
            raise
        except EngineError as error:
            if (away := await gone(error, self._server.check)) is None:
                raise
            self._watch.lost(away)
            raise away from error

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnavailable("The engine was closed.")


WHO = "watch"
log = logging.getLogger(__name__)


class Watch:
    """`run` it as a task. Whoever meets a fault of the server tells `lost`."""

    def __init__(
        self,
        door: Door,
        *,
        check: Callable[[], Awaitable[None]],
        recover: Callable[[], Awaitable[None]],
        every_s: float,
    ) -> None:
        """`check` returns if the server can serve, `recover` brings the right weights back to it."""
        self._door, self._check, self._recover, self._every_s = door, check, recover, every_s
        self._told = asyncio.Event()

    def lost(self, error: Exception) -> None:
        """The server is not what it was: nobody passes until it is seen to be right."""
        if not self._door.closed_by(WHO):
            log.warning("the engine's server is away: %s", error)
        self._door.close(WHO, str(error))
        self._told.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                await self._look()
            except AfterwitError as error:
                self._door.close(WHO, str(error))
            except (
                Exception
            ) as error:  # a fault of our own must not end the watch: nobody would open the door
                log.exception("watching the engine's server failed")
                self._door.close(WHO, f"watching the server failed: {type(error).__name__} (see the log)")
            self._told.clear()
            try:
                async with asyncio.timeout(self._every_s):
                    await self._told.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        try:
            await self._check()
        except EngineUnavailable as error:
            self.lost(error)
            return
        if self._door.closed_by(WHO):
            await self._recover()
            self._door.open(WHO)
            log.warning("the engine's server is back")


MOST_INTERRUPTIONS = 2
"""A request that brings its server down must not do so for ever."""


class Interruptions:
    """The interruptions of one request so far."""

    def __init__(self, check_open: Callable[[], None]) -> None:
        """`check_open` raises if the engine itself was closed: then nothing is tried again."""
        self._check_open = check_open
        self._count = 0

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Around one attempt, in a loop. EngineUnavailable ends it; one too many is raised."""
        try:
            yield
        except EngineUnavailable:
            self._check_open()
            self._count += 1
            if self._count > MOST_INTERRUPTIONS:
                raise
