"""The engines that must keep the contract: one entry per engine. A new engine adds its own here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import open_engine
from afterwit.engines.port import Engine
from afterwit.engines.server.settings import Swap
from tests.engines.llama_cpp.servers import opened as opened_llama_cpp
from tests.engines.server.pretend import FACTS, PretendServer, fleet_over
from tests.engines.sglang.servers import opened as opened_sglang
from tests.engines.vllm.servers import opened as opened_vllm
from tests.fakes.engine import FakeEngine
from tests.servers.server import Servers

VOCABULARY = 457
"""Of the small models that the suite serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Folders of one small model. Its context is 2,048 tokens."""

    base: Path
    newer: Path
    """Other weights of the same shape."""
    adapter: Path
    """Other weights as an adapter."""
    unfit: Path
    """Weights of another model."""

    def newer_for(self, engine: Engine) -> Path:
        """Other weights in the form that an engine takes."""
        return self.newer if engine.capabilities.whole_weights else self.adapter


Factory = Callable[[Models, Servers], AbstractAsyncContextManager[Engine]]


@asynccontextmanager
async def embedded(models: Models, servers: Servers) -> AsyncIterator[Engine]:
    engine = await open_engine(models.base, EmbeddedSettings(device="cpu", prefill_chunk=16, slots=4))
    yield engine
    await engine.close()


@asynccontextmanager
async def fake(models: Models, servers: Servers) -> AsyncIterator[Engine]:
    yield FakeEngine(lambda request: range(10, 400), end_id=2, vocabulary=VOCABULARY)


@asynccontextmanager
async def vllm(models: Models, servers: Servers, *, swap: Swap) -> AsyncIterator[Engine]:
    async with opened_vllm(servers, models.base, swap=swap) as engine:
        yield engine


@asynccontextmanager
async def sglang(models: Models, servers: Servers, *, swap: Swap) -> AsyncIterator[Engine]:
    async with opened_sglang(servers, models.base, swap=swap) as engine:
        yield engine


@asynccontextmanager
async def llama_cpp(models: Models, servers: Servers) -> AsyncIterator[Engine]:
    async with opened_llama_cpp(servers, models.base) as engine:
        yield engine


@asynccontextmanager
async def fleet(models: Models, servers: Servers, *, swap: Swap) -> AsyncIterator[Engine]:
    """Its servers make up their log-probs, as the fake engine does."""
    facts = replace(FACTS, name="fake", vocabulary=VOCABULARY, context_length=2048)
    async with fleet_over([PretendServer(), PretendServer()], models.base, swap=swap, facts=facts) as engine:
        yield engine


FACTORIES: Mapping[str, Factory] = {
    "embedded": embedded,
    "fake": fake,
    "fleet": partial(fleet, swap="adapters"),
    "fleet whole": partial(fleet, swap="whole"),
    "llama_cpp": llama_cpp,
    "sglang": partial(sglang, swap="adapters"),
    "sglang whole": partial(sglang, swap="whole"),
    "vllm": partial(vllm, swap="adapters"),
    "vllm whole": partial(vllm, swap="whole"),
}
"""Each yields an engine over `models.base` and closes it."""
SERVED = frozenset({"llama_cpp", "sglang", "sglang whole", "vllm", "vllm whole"})
"""Those that need a real server: run by `make test-engines`."""
