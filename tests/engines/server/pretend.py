"""A server in memory with the protocol: it can die, come back without its adapters, and stall."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from afterwit.engines.port import Capabilities, Facts, TopLogprobs
from afterwit.engines.server.fleet import Fleet
from afterwit.engines.server.replica import Replica
from afterwit.engines.server.server import SampleRequest, Server, StreamChunk, top_logprobs
from afterwit.engines.server.settings import Swap
from afterwit.errors import EngineError, EngineUnavailable
from afterwit.turn import Basis

FACTS = Facts(
    name="pretend",
    model="tiny",
    context_length=200,
    vocabulary=100,
    end_ids=frozenset({2}),
    dtype="float32",
    fingerprint="pretend",
)
CAPABILITIES = Capabilities(
    basis=Basis.PROCESSED,
    base_weights=True,
    forced_prefix=True,
    adapters=True,
    own_adapters=True,
    scored_ids=20,
)
STEP_S = 0.001
"""Seconds for a token. Without them the event loop never rests, and a thread waits 5 ms for each system call:
the comparison of an adapter's files then takes seconds."""


class PretendServer(Server):
    """Each id it samples is the length of what it was given, so that a gap or an overlap shows."""

    def __init__(self) -> None:
        self.up = True
        self.adapters: dict[str, Path] = {}
        self.weights: Path | None = None
        """Those that were loaded in place of the base's."""
        self.label = "default"
        self.unloaded: list[str] = []
        self.asked: list[SampleRequest] = []
        self.refuses: set[Path] = set()
        """Weights that do not fit."""
        self.forgetful = False
        """After a restart it gives other log-probs."""
        self.breaks_at: set[int] = set()
        """Lengths at which it dies, once each."""
        self.holds = asyncio.Event()
        """Cleared: it samples nothing."""
        self.holds.set()

    def restart(self) -> None:
        """A new process: it knows nothing of adapters and weights."""
        self.up, self.adapters, self.weights, self.label = True, {}, None, "default"

    async def check(self) -> str | None:
        self._alive()
        return self.label

    async def sample(self, ask: SampleRequest) -> AsyncGenerator[StreamChunk, None]:
        self._knows(ask.weights)
        self.asked.append(ask)
        length, left = len(ask.prompt_ids), ask.sampling.max_tokens
        while left:
            await self.holds.wait()
            await asyncio.sleep(STEP_S)
            if length in self.breaks_at:
                self.breaks_at.remove(length)
                self.up = False
            self._alive()
            left -= 1
            token = length % 100
            ended = "stop" if token in ask.end_ids else None if left else "length"
            yield StreamChunk(ids=(token,), logprobs=(-0.5,), ended=ended)
            if ended:
                return
            length += 1

    async def score(self, ids: Sequence[int], weights: str | None) -> list[float]:
        self._knows(weights)
        folder = self.adapters[weights] if weights else self.weights
        return [-(1.0 + self.forgetful + len(str(folder)))] * (len(ids) - 1)

    async def top_logprobs(
        self, ids: Sequence[int], weights: str | None, *, first: int, top: int
    ) -> list[TopLogprobs]:
        self._knows(weights)
        await self.holds.wait()
        self._alive()
        others = [(index, -2.0 - index) for index in range(20)]
        return [top_logprobs(token, [*others, (token, -1.0), (99, -0.5)], top) for token in ids[first:]]

    async def load_adapter(self, name: str, folder: Path) -> None:
        self._alive()
        if folder in self.refuses:
            raise EngineError("it does not fit")
        self.adapters[name] = folder

    async def unload_adapter(self, name: str) -> None:
        self._alive()
        if name not in self.adapters:
            raise EngineError(f"no adapter {name}")
        del self.adapters[name]
        self.unloaded.append(name)

    async def load_weights(self, folder: Path, label: str) -> None:
        self._alive()
        if folder in self.refuses:
            raise EngineError("it does not fit")
        self.weights, self.label = folder, label

    async def close(self) -> None:
        self.up = False

    def _alive(self) -> None:
        if not self.up:
            raise EngineUnavailable("nobody answers")

    def _knows(self, weights: str | None) -> None:
        self._alive()
        if weights is not None and weights not in self.adapters:
            raise EngineUnavailable(f"no adapter {weights}")


@asynccontextmanager
async def engine_over(
    server: PretendServer, base: Path, *, swap: Swap = "adapters", patience_s: float = 60.0
) -> AsyncIterator[Fleet]:
    """An engine that looks at its server all the time."""
    async with fleet_over([server], base, swap=swap, patience_s=patience_s) as fleet:
        yield fleet


@asynccontextmanager
async def fleet_over(
    servers: Sequence[PretendServer],
    base: Path,
    *,
    swap: Swap = "adapters",
    patience_s: float = 60.0,
    facts: Facts = FACTS,
) -> AsyncIterator[Fleet]:
    """An engine over servers that are called a, b and so on."""
    replicas = [
        await replica_over(server, base, name=name, swap=swap, facts=facts)
        for name, server in zip("abcd", servers, strict=False)
    ]
    fleet = Fleet(replicas, patience_s=patience_s, watch_s=0.001)
    try:
        yield fleet
    finally:
        await fleet.close()


async def replica_over(
    server: PretendServer,
    base: Path,
    *,
    name: str = "a",
    swap: Swap = "adapters",
    facts: Facts = FACTS,
    capabilities: Capabilities = CAPABILITIES,
) -> Replica:
    if swap == "whole":
        capabilities = replace(
            capabilities, whole_weights=True, adapters=False, own_adapters=False, base_weights=False
        )
    return await Replica.open(name, server, base, facts=facts, capabilities=capabilities, swap=swap)


async def until(true: Callable[[], object]) -> None:
    """Let the engine work until something is true."""
    while not true():  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.001)
