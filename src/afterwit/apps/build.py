"""The only place that constructs: store, versions, engine, judge, learner, publisher, gateway.

Imports are inside the functions, so that a command loads only what it builds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.apps.config import Settings, StoreSettings, home_of
from afterwit.apps.home import STORE, VERSIONS, make_home, remembered_model, store_url
from afterwit.apps.judge_prompts import judge_prompts
from afterwit.apps.stores import open_store
from afterwit.core.errors import SettingError, StoreMismatch, VersionDamaged

if TYPE_CHECKING:
    from afterwit.checkpoints import Versions
    from afterwit.core.teacher import TeacherServer
    from afterwit.engines.port import Engine
    from afterwit.learner.policy import Policy
    from afterwit.learner.settings import LearnerSettings
    from afterwit.learner.trainer import Trainer
    from afterwit.stages.atropos.stage import Consumer
    from afterwit.stages.gateway.app import GatewayApp
    from afterwit.stages.hindsight import Hindsight, HindsightSettings
    from afterwit.stages.housekeeping import Housekeeping
    from afterwit.stages.judge.client import JudgeClient
    from afterwit.stages.judge.http_judge import HttpJudge
    from afterwit.stages.judge.settings import JudgeSettings
    from afterwit.stages.judge.stage import Judge
    from afterwit.stages.learn import Learn
    from afterwit.stages.publish import Publisher
    from afterwit.stages.worker import Report
    from afterwit.store import AsyncStore, Store
    from afterwit.wire.model_text.render import Renderer

log = logging.getLogger(__name__)


def store_of_model(settings: Settings, home: Path, folder: Path) -> Store:
    """The home's store, made if missing, bound to the model. StoreMismatch if it is another model's."""
    from afterwit.engines.fingerprint import fingerprint

    make_home(home)
    synchronous = settings.store.synchronous
    try:
        return open_store(store_url(home), fingerprint=fingerprint(folder), synchronous=synchronous)
    except StoreMismatch as error:
        made_with = remembered_model(home)
        if made_with is None or Path(made_with) == folder.resolve():
            raise
        raise StoreMismatch(f"{error} It was made with {made_with}.") from error


@contextmanager
def store_of_home(home: Path | None, *, make: bool = False) -> Iterator[Store]:
    """The home's store for as long as a command runs; it may be any model's.

    With `make`, a new home gets an empty one; without, SettingError says how to get one.
    """
    folder = home_of(home)
    path = folder / STORE
    if make:
        make_home(folder)
    elif not path.exists():
        raise SettingError(
            f"there is no store at {path}: start `afterwit serve` first, or name another --home"
        )
    store = open_store(store_url(folder), fingerprint=None, synchronous=StoreSettings().synchronous)
    try:
        yield store
    finally:
        store.close()


def async_store(store: Store) -> AsyncStore:
    """The store behind a thread of its own."""
    from afterwit.store import AsyncStore

    return AsyncStore(store)


def versions_of(home: Path, folder: Path) -> Versions:
    """The home's folder of versions over the model."""
    from afterwit.checkpoints import Versions

    return Versions(root=home / VERSIONS, base=folder)


async def engine_of(settings: Settings, folder: Path, *, takes_weights: bool = True) -> Engine:
    """The engine that `engine.kind` names, ready. SettingError if it cannot serve this model.

    Without `takes_weights`, a server may lack what only new weights need.
    """
    from afterwit.engines.kinds import open_engine

    return await open_engine(folder, settings.engine, takes_weights=takes_weights)


def judge_client(settings: JudgeSettings, engine: Engine | None, renderer: Renderer) -> JudgeClient:
    """The endpoint at `judge.url`; without one, the served model's own frozen weights."""
    from afterwit.stages.judge.engine_judge import EngineJudge

    if settings.url is not None:
        return http_judge(settings)
    if engine is None:
        raise SettingError(
            "without a gateway here there is no model to judge with: set judge.url and judge.model"
        )
    return EngineJudge(engine, renderer, weights=settings.weights, thinking=settings.thinking)


def http_judge(settings: JudgeSettings) -> HttpJudge:
    """The endpoint at `judge.url`. SettingError if the variable that holds its key is not set."""
    from afterwit.stages.judge.http_judge import HttpJudge

    return HttpJudge.of(settings, os.environ)


def judge_stage(settings: Settings, store: AsyncStore, client: JudgeClient) -> Judge:
    """The judge stage over a store and a client."""
    from afterwit.stages.judge.claims import Clock
    from afterwit.stages.judge.stage import Judge
    from afterwit.stages.promotion import WatchOver

    judge = settings.judge
    return Judge(
        store=store,
        client=client,
        prompts=judge_prompts(judge),
        settings=judge,
        rules=judge.rules(settings.objective.reads),
        owner=_worker_name("judge"),
        clock=Clock(now=time.time, sleep=asyncio.sleep, random=random.random),
        after=WatchOver(settings.promotion).judged,
        redaction=settings.redaction,
    )


def trainer_of(settings: Settings, home: Path, folder: Path) -> Trainer:
    """The learner's core. It loads the model when it is first asked for its policy."""
    from afterwit.learner.trainer import Trainer
    from afterwit.wire.model_text.render import Renderer

    return Trainer(
        versions_of(home, folder),
        Renderer.load(folder),
        settings=learner_settings(settings.learner, home, folder),
        objective=settings.objective,
        placement=settings.judge.placement,
        teacher=teacher_server(settings, folder),
    )


def teacher_server(settings: Settings, folder: Path) -> TeacherServer | None:
    """The server that `learner.teacher = "server"` names, not asked yet; None for any other teacher.

    SettingError if the settings name none whose weights stay what they are.
    """
    from afterwit.engines.server.settings import ServerSettings
    from afterwit.engines.teacher import ServedTeacher
    from afterwit.learner.settings import SERVER

    engine, learner = settings.engine, settings.learner
    if learner.teacher != SERVER:
        return None
    waits = engine if isinstance(engine, ServerSettings) else ServerSettings()
    url, key = learner.teacher_url, _named_key("learner.teacher_key_env", learner.teacher_key_env)
    if url is None:
        if not isinstance(engine, ServerSettings):
            raise SettingError(
                'learner.teacher is "server", but the engine is embedded: set learner.teacher_url'
            )
        if engine.swap != "adapters":
            raise SettingError(
                f'learner.teacher is "server", but with engine.swap = "{engine.swap}" the weights at '
                f'{engine.url} change: set learner.teacher_url, or engine.swap = "adapters"'
            )
        url, key = engine.url, engine.key(os.environ)
    return ServedTeacher(
        folder,
        url,
        k=settings.objective.ids_kept,
        key=key,
        silence_s=waits.silence_s,
        patience_s=waits.patience_s,
    )


def check_teacher(settings: Settings, folder: Path) -> None:
    """SettingError if the teacher is on a server that the settings do not name, or that cannot teach the
    objective. The server is not asked."""
    if teacher_server(settings, folder) is not None:
        from afterwit.learner.served import require_servable

        require_servable(settings.objective)


def _named_key(setting: str, variable: str | None) -> str | None:
    """What an environment variable holds. SettingError if it is named and not set."""
    if variable is not None and not os.environ.get(variable):
        raise SettingError(f"{setting} names the environment variable {variable}, which is not set")
    return None if variable is None else os.environ[variable]


def learner_settings(settings: LearnerSettings, home: Path, folder: Path) -> LearnerSettings:
    """The settings with folders in place of hub ids. SettingError if a tokenizer is not the model's."""
    from afterwit.apps.model import model_folder
    from afterwit.wire.model_text.same_tokenizer import require_same_tokenizer

    for name, value in settings.checkpoints.items():
        other = model_folder(value, home)
        require_same_tokenizer(folder, other, f"learner.{name}")
        settings = replace(settings, **{name: str(other)})  # type: ignore[arg-type]  # both are strings
    return settings


def base_policy(settings: Settings, home: Path, folder: Path) -> Policy:
    """The model before it learned anything, loaded as the learner loads it."""
    from afterwit.learner.policy import Policy

    return Policy.load(versions_of(home, folder), 0, settings.learner)


def learn_stage(settings: Settings, store: Store, trainer: Trainer) -> Learn:
    """The learn stage over a store."""
    from afterwit.stages.learn import Learn

    return Learn(store, trainer, owner=_worker_name("learn"), promotion=settings.promotion)


def atropos_consumer(settings: Settings, store: Store, trainer: Trainer) -> Consumer:
    """What trains on the batches of an Atropos server; its health is the learn stage's."""
    from afterwit.stages.atropos.server import AtroposServer
    from afterwit.stages.atropos.stage import Consumer
    from afterwit.stages.learn.health import LearnHealth
    from afterwit.stages.paused import on_person

    server = AtroposServer(url=settings.atropos.url, timeout_s=settings.atropos.timeout_s)
    return Consumer(
        server,
        trainer,
        settings.atropos,
        now=time.time,
        report=LearnHealth(store, time.time).report,
        committed=lambda version: store.commit_version(version, now=time.time()),
        paused=lambda: None if (pause := store.paused()) is None else on_person(pause),
    )


def hindsight_of(
    settings: Settings,
    hindsight: HindsightSettings,
    engine: Engine,
    renderer: Renderer,
    *,
    temperature: float,
) -> Hindsight:
    """Hindsight over whole rollouts, with the judge that the settings name; `temperature` is the policy's.

    SettingError if this engine cannot judge or teach.
    """
    from afterwit.stages.hindsight import Hindsight
    from afterwit.stages.judge.verdicts import Verdicts
    from afterwit.stages.retry import BackOff

    judge = settings.judge
    back_off = BackOff(base_s=judge.retry_base_s, max_s=judge.retry_max_s, random=random.random)
    verdicts = Verdicts(
        judge_client(judge, engine, renderer),
        judge_prompts(judge),
        judge.rules(hindsight.reads),
        judge,
        back_off=back_off,
        sleep=asyncio.sleep,
    )
    return Hindsight(
        engine,
        renderer,
        verdicts,
        hindsight,
        placement=judge.placement,
        temperature=temperature,
        back_off=back_off,
        sleep=asyncio.sleep,
    )


def publisher_of(settings: Settings, engine: Engine, versions: Versions, store: AsyncStore) -> Publisher:
    """The publish stage: it loads new versions into the engine and tells the store what is served."""
    from afterwit.stages.publish import check_capable

    if settings.learner.enabled:
        check_capable(engine.capabilities, lora_rank=settings.learner.lora_rank)
    return _publisher(settings, engine, versions, partial(_published, store, versions))


def follower_of(settings: Settings, engine: Engine, versions: Versions) -> Publisher:
    """What loads a trainer's versions into an engine that has no store beside it."""

    async def published(number: int) -> None:
        log.info("publish: serving version %d", number)

    return _publisher(settings, engine, versions, published)


def _publisher(
    settings: Settings, engine: Engine, versions: Versions, published: Callable[[int], Awaitable[object]]
) -> Publisher:
    from afterwit.stages.publish import Publisher

    tolerance = settings.publish.tolerance_for(engine.facts.dtype, settings.learner.dtype)
    return Publisher(engine=engine, checkpoints=versions, published=published, tolerance=tolerance)


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


def gateway_app(
    settings: Settings,
    engine: Engine,
    renderer: Renderer,
    store: AsyncStore,
    *,
    versions: Versions,
    wake_judge: Callable[[], None],
) -> GatewayApp:
    """The gateway's application, with the buttons of its page."""
    from afterwit.stages.gateway.app import build_app
    from afterwit.stages.gateway.page import HomeControls

    controls = HomeControls(store, versions, time.time)
    return build_app(engine, renderer, store, settings.gateway, controls=controls, wake_judge=wake_judge)


def housekeeping_of(settings: Settings, home: Path, store: AsyncStore, report: Report) -> Housekeeping:
    """Housekeeping over the store."""
    from afterwit.stages.housekeeping import Housekeeping, RetentionLimits
    from afterwit.stages.promotion import WatchOver

    kept = settings.store
    retention = RetentionLimits(
        next_state_s=kept.next_state_hours * 3600,
        max_age_s=kept.keep_days * 86400,
        max_bytes=int(kept.keep_gb * 1e9),
    )
    watch = WatchOver(settings.promotion)
    return Housekeeping(store, home, retention, report=report, now=time.time, sweep=watch.sweep)


def _worker_name(stage: str) -> str:
    """Who holds a lease: one name a process."""
    return f"{stage}-{os.uname().nodename}-{os.getpid()}"
