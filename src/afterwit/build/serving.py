"""What serves: the engine, the gateway in front of it, and the publisher that gives it new versions."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.adapters import SHARED
from afterwit.config import Settings
from afterwit.errors import VersionDamaged

if TYPE_CHECKING:
    from afterwit.chat_format.render import Renderer
    from afterwit.checkpoints.versions import Versions
    from afterwit.engines.port import Engine
    from afterwit.gateway.app import GatewayApp
    from afterwit.publish.own_adapters import OwnAdapters
    from afterwit.publish.publisher import Publisher
    from afterwit.store import AsyncStore, Store

log = logging.getLogger(__name__)


async def engine_of(settings: Settings, folder: Path, *, takes_weights: bool = True) -> Engine:
    """The engine that `engine.kind` names, ready. SettingError if it cannot serve this model.

    Without `takes_weights`, a server may lack what only new weights need.
    """
    from afterwit.engines.kinds import open_engine

    return await open_engine(folder, settings.engine, takes_weights=takes_weights)


def gateway_app(
    settings: Settings,
    engine: Engine,
    renderer: Renderer,
    store: AsyncStore,
    *,
    versions: Versions,
    wake_judge: Callable[[], None],
    servers: Callable[[], Mapping[str, str]],
) -> GatewayApp:
    """The gateway's application, with the buttons of its page."""
    from afterwit.gateway.app import build_app
    from afterwit.page.html import HomeControls

    controls = HomeControls(store, versions, time.time)
    return build_app(
        engine,
        renderer,
        store,
        settings.gateway,
        adapters=settings.learner.adapter_policy,
        controls=controls,
        wake_judge=wake_judge,
        servers=servers,
    )


def publisher_of(settings: Settings, engine: Engine, versions: Versions, store: AsyncStore) -> Publisher:
    """The publish stage: it loads new versions into the engine and tells the store what is served."""
    from afterwit.publish.publisher import check_capable

    if settings.learner.enabled:
        own = settings.learner.adapters != "shared"
        dtypes = (engine.facts.dtype, settings.learner.dtype)
        rank = settings.learner.lora_rank
        check_capable(engine.capabilities, lora_rank=rank, dtypes=dtypes, own_adapters=own)
    return _publisher(settings, engine, versions, partial(_published, store, versions))


def own_adapters_of(
    settings: Settings, engine: Engine, versions: Versions, store: AsyncStore, shared: Publisher
) -> OwnAdapters | None:
    """What gives the engine adapters of somebody's own; None: everybody has the shared one, which `shared`
    publishes."""
    from afterwit.publish.own_adapters import OwnAdapters, Room

    if settings.learner.adapters == "shared":
        return None

    def publisher(adapter: str) -> Publisher:
        published = partial(_published, store, versions)
        return _publisher(settings, engine, versions, published, adapter=adapter, beside=shared)

    room = Room(most=settings.publish.adapters, idle_s=settings.publish.idle_s)
    return OwnAdapters(engine, publisher, versions.chains, room=room, now=time.monotonic)


def follower_of(settings: Settings, engine: Engine, versions: Versions) -> Publisher:
    """What loads a trainer's versions into an engine that has no store beside it."""

    async def published(number: int) -> None:
        log.info("publish: serving version %d", number)

    return _publisher(settings, engine, versions, published)


def _publisher(
    settings: Settings,
    engine: Engine,
    versions: Versions,
    published: Callable[[int], Awaitable[object]],
    *,
    adapter: str = SHARED,
    beside: Publisher | None = None,
) -> Publisher:
    """`beside` is another publisher over the engine."""
    from afterwit.publish.publisher import Publisher

    return Publisher(
        engine=engine,
        checkpoints=versions.of(adapter),
        published=published,
        dtype=settings.learner.dtype,
        keep_versions=settings.learner.keep_versions,
        adapter=adapter,
        one_at_a_time=None if beside is None else beside.one_at_a_time,
    )


async def _published(store: AsyncStore, versions: Versions, number: int) -> None:
    """Tell the store what is served; the manifest is enough for it to know the version."""
    version, now = versions.get(number), time.time()
    if version is None:
        raise VersionDamaged(f"version {number} is served, but its manifest is gone")

    def record(store: Store) -> None:
        store.commit_version(version, now=now)
        store.published(number, now=now)

    log.info("publish: serving version %d", number)
    await store.call(record)
