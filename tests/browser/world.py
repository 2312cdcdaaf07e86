"""A gateway whose store has a history, with buttons that write versions into the store alone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from afterwit.chat_format.render import Renderer
from afterwit.store import Store
from afterwit.version import Origin, Version
from tests.browser.history import HOUR, PROBE, play
from tests.gateway.serving import Serving, serving


async def roll_back(serving: Serving, target: int) -> Version:
    """Rolls back in the store, without weights."""

    def commit(store: Store) -> Version:
        newest = store.versions()[-1].number
        made = Version(
            number=newest + 1,
            parent=newest,
            origin=Origin.ROLLBACK,
            created=serving.clock(),
            restores=target,
            reverts=tuple(range(target + 1, newest + 1)),
            probe=PROBE,
        )
        store.commit_version(made, now=serving.clock())
        return made

    return await serving.store.call(commit)


@dataclass
class World:
    """A gateway with its address for browsers."""

    serving: Serving
    url: str

    @property
    def entrance(self) -> str:
        """The address that begins a visit."""
        return f"{self.url}/ui?token={self.serving.app.gateway.token}"


@asynccontextmanager
async def world_in(folder: Path, renderer: Renderer, *, sessions: int = 90) -> AsyncIterator[World]:
    """`folder` gets the store; what happened ends now."""

    async def rolled_back(target: int) -> Version:
        return await roll_back(made, target)

    async with serving(folder, renderer, roll_back=rolled_back, model="Qwen/Qwen3-4B") as made:
        begun = time.time() - 30 * HOUR
        ended = await made.store.call(lambda store: play(store, renderer, sessions=sessions, now=begun))
        made.clock.at = max(time.time(), ended)
        versions = await made.store.call(lambda store: store.versions())
        made.engine.version = versions[-1].number
        yield World(made, made.url.removesuffix("/v1"))
