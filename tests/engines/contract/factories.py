"""The engines that must keep the contract: one entry per engine. A new engine adds its own here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import open_engine
from afterwit.engines.port import Engine
from tests.fakes.engine import FakeEngine

VOCABULARY = 457
"""Of the small models that the suite serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Folders of one small model. Its context is 2,048 tokens."""

    base: Path
    newer: Path
    """Other weights of the same shape."""
    unfit: Path
    """Weights of another model."""


Factory = Callable[[Models], AbstractAsyncContextManager[Engine]]


@asynccontextmanager
async def embedded(models: Models) -> AsyncIterator[Engine]:
    engine = await open_engine(models.base, EmbeddedSettings(device="cpu", prefill_chunk=16, slots=4))
    yield engine
    await engine.close()


@asynccontextmanager
async def fake(models: Models) -> AsyncIterator[Engine]:
    yield FakeEngine(lambda request: range(10, 400), end_id=2, vocabulary=VOCABULARY)


FACTORIES: Mapping[str, Factory] = {"embedded": embedded, "fake": fake}
"""Each yields an engine over `models.base` and closes it."""
