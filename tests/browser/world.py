"""A gateway whose store has a history, with buttons that write versions into the store alone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from afterwit.chat_format.render import Renderer
from afterwit.version import Origin, Version
from tests.browser.history import HOUR, PROBE, play
from tests.gateway.serving import Serving, serving


class StoreControls:
    """Rolls back in the store, without weights."""

    serving: Serving

    async def roll_back(self, target: int) -> Version:
        def commit(store) -> Version:
            newest = store.versions()[-1].number
            made = Version(
                number=newest + 1,
                parent=newest,
                origin=Origin.ROLLBACK,
                created=self.serving.clock(),
                restores=target,
                reverts=tuple(range(target + 1, newest + 1)),
                probe=PROBE,
            )
            store.commit_version(made, now=self.serving.clock())
            return made

        return await self.serving.store.call(commit)


@dataclass
class World:
    """A gateway with its address for browsers."""

    serving: Serving
    url: str


@asynccontextmanager
async def world_in(folder: Path, renderer: Renderer, *, sessions: int = 90) -> AsyncIterator[World]:
    """`folder` gets the store; what happened ends now."""
    controls = StoreControls()
    async with serving(folder, renderer, controls=controls, model="Qwen/Qwen3-4B") as made:
        controls.serving = made
        begun = time.time() - 30 * HOUR
        ended = await made.store.call(lambda store: play(store, renderer, sessions=sessions, now=begun))
        made.clock.at = max(time.time(), ended)
        versions = await made.store.call(lambda store: store.versions())
        made.engine.version = versions[-1].number
        yield World(made, made.url.removesuffix("/v1"))
