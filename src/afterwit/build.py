"""The only place that constructs: store, versions, engine, judge, learner, publisher, gateway.

Imports are inside the functions, so that a command loads only what it builds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afterwit import plugins
from afterwit.config import Settings, StoreSettings, home_of, section_of_home
from afterwit.errors import SettingError, StoreError, StoreMismatch
from afterwit.home.home import STORE, VERSIONS, make_home, remembered_model, store_url
from afterwit.ranges import key_from
from afterwit.store import open_store, store_exists
from afterwit.turn import SHARED

if TYPE_CHECKING:
    from afterwit.chat_format.render import Renderer
    from afterwit.checkpoints.remote import VersionsSettings
    from afterwit.checkpoints.versions import Versions
    from afterwit.engines.port import Engine, TeacherServer
    from afterwit.gateway.app import GatewayApp
    from afterwit.gateway.context import Lessons
    from afterwit.judging.ability import Examination, Examiner
    from afterwit.judging.http_judge import HttpJudge
    from afterwit.judging.settings import JudgeSettings
    from afterwit.judging.stage import Judge
    from afterwit.judging.verdicts import HintTrial, JudgeClient, Verdicts
    from afterwit.judging.voting import Answer
    from afterwit.learning.passes import Ranks
    from afterwit.learning.settings import LearnerSettings
    from afterwit.learning.stage import Learn
    from afterwit.learning.trainer import Trainer
    from afterwit.practice.stage import Practice
    from afterwit.publish.publisher import OwnAdapters, Publisher
    from afterwit.store import AsyncStore, Store
    from afterwit.turn import Message
    from afterwit.verdict import Reads

log = logging.getLogger(__name__)

JUDGES = plugins.Table["Callable[[JudgeSettings], JudgeClient]"](plugins.JUDGES, Callable)


def store_of_model(settings: Settings, home: Path, folder: Path, *, bind: bool = True) -> Store:
    """The home's store, made if missing, bound to the model. StoreMismatch if it is another model's.

    Without `bind` a new store stays any model's: bind it when its first turn may come."""
    from afterwit.engines.model_files import fingerprint

    make_home(home)
    url, own = store_url(home, settings.store.url), fingerprint(folder)
    try:
        store = open_store(url, fingerprint=own, synchronous=settings.store.synchronous)
        if bind:
            store.bind(own)
        return store
    except StoreMismatch as error:
        made_with = remembered_model(home)
        if made_with is None or Path(made_with) == folder.resolve():
            raise
        raise StoreMismatch(f"{error} It was made with {made_with}.") from error


@contextmanager
def store_of_home(home: Path | None, *, make: bool = False) -> Iterator[Store]:
    """The home's store, or that of `store.url`, while a command runs; it may be any model's.

    With `make`, a new home gets an empty one; otherwise SettingError names the remedy.
    """
    folder = home_of(home)
    settings = section_of_home(folder, "store").store
    url = store_url(folder, settings.url)
    if make:
        make_home(folder)
    else:
        require_store(settings, folder)
    store = open_store(url, fingerprint=None, synchronous=settings.synchronous)
    try:
        yield store
    finally:
        store.close()


def require_store(settings: StoreSettings, home: Path) -> None:
    """SettingError if the home has no store."""
    if not store_exists(store_url(home, settings.url)):
        place = "store.url" if settings.url else home / STORE
        raise SettingError(
            f"there is no store at {place}: start `afterwit serve` first, or name another --home"
        )


def store_at(url: str) -> Store:
    """The store at a URL, made if missing, of any home and any model."""
    return open_store(url, fingerprint=None, synchronous=StoreSettings().synchronous)


def async_store(store: Store) -> AsyncStore:
    """The store on a thread of its own."""
    from afterwit.store import AsyncStore

    return AsyncStore(store)


def versions_of(home: Path, folder: Path, settings: VersionsSettings | None = None) -> Versions:
    """The home's versions of the model, shared at `versions.url` if the settings name one."""
    from afterwit.checkpoints.remote import remote_of
    from afterwit.checkpoints.versions import Versions

    remote, every = (None, 1) if settings is None else (remote_of(settings), settings.state_every)
    versions = Versions(root=home / VERSIONS, base=folder, remote=remote, state_every=every)
    versions.rename_states()
    return versions


def worker_name(stage: str) -> str:
    """The holder of a lease: one name for each process."""
    return f"{stage}-{os.uname().nodename}-{os.getpid()}"


# Judging


def judge_client(settings: JudgeSettings, engine: Engine | None, renderer: Renderer) -> JudgeClient:
    """The installed `judge.client`, the endpoint at `judge.url`, or the served model's frozen weights."""
    from afterwit.judging.engine_judge import EngineJudge
    from afterwit.judging.verdicts import InTime

    if settings.client is not None:
        make = JUDGES.loaded(settings.client)
        try:
            client = make(settings)
        except Exception as error:  # a foreign package may raise anything
            raise SettingError(
                f"the judge {settings.client} failed: {type(error).__name__}: {error}"
            ) from error
        if isinstance(client, type) or not hasattr(client, "ask"):
            raise SettingError(f"the judge {settings.client} is no object with ask(): {client!r}")
        return InTime(client, settings.timeout_s)
    if settings.url is not None:
        return http_judge(settings)
    if engine is None:
        raise SettingError(
            "without a gateway here there is no model to judge with: set judge.url and judge.model"
        )
    return EngineJudge(engine, renderer, weights=settings.weights, thinking=settings.thinking)


def verdicts_of(judge: JudgeSettings, reads: Reads, engine: Engine, renderer: Renderer) -> Verdicts:
    """Verdicts by the settings' judge outside the judge stage; `reads` are the parts that are read.

    SettingError if this engine cannot judge.
    """
    from afterwit.judging.verdicts import Verdicts
    from afterwit.worker import BackOff

    return Verdicts(
        judge_client(judge, engine, renderer),
        judge,
        reads,
        back_off=BackOff(base_s=judge.retry_base_s, max_s=judge.retry_max_s),
        sleep=asyncio.sleep,
    )


def http_judge(settings: JudgeSettings) -> HttpJudge:
    """The endpoint at `judge.url`. SettingError if the variable that holds its key is not set."""
    from afterwit.judging.http_judge import HttpJudge

    return HttpJudge(settings, os.environ)


def examination(
    settings: JudgeSettings, client: JudgeClient, engine: Engine | None, renderer: Renderer | None
) -> Examination:
    """How a judge is examined. The engine reads in its place, or the endpoint if it gives log-probs."""
    from afterwit.judging.ability import Examination, Reader
    from afterwit.judging.engine_judge import EngineJudge, EngineReader
    from afterwit.judging.http_judge import HttpJudge

    readers: list[Reader] = [client] if isinstance(client, HttpJudge) else []
    if engine is not None and renderer is not None:
        readers.append(EngineReader(engine, renderer))
    asked = client.urgent if isinstance(client, EngineJudge) else client  # all turns wait for the answers
    return Examination(asked, settings, readers, None if engine is None else engine.facts)


def judge_stage(
    settings: Settings,
    store: AsyncStore,
    engine: Engine | None,
    renderer: Renderer,
    client: JudgeClient | None = None,
) -> tuple[Judge, JudgeClient, Examiner | None]:
    """The judge stage; the judge, which is `client` or else that of the settings; and what examines it.

    A given client, one with `short` prompts, and one of a package that has `examined = False` is assumed to
    be able to judge; any other is examined.
    """
    from afterwit.judging.ability import Examiner
    from afterwit.judging.stage import Clock, Judge
    from afterwit.judging.verdicts import is_examined
    from afterwit.practice.stage import with_lessons
    from afterwit.promotion.watch import WatchOver

    judge, examiner, trial = settings.judge, None, None
    if client is None:
        client, trial = judge_client(judge, engine, renderer), _trial(judge, engine, renderer)
        if judge.prompts != "short" and is_examined(client):
            examiner = Examiner(store, examination(judge, client, engine, renderer))
    stage = Judge(
        store=store,
        client=client,
        settings=judge,
        reads=settings.objective.reads,
        owner=worker_name("judge"),
        clock=Clock(now=time.time, sleep=asyncio.sleep, random=random.random),
        after=with_lessons(WatchOver(settings.promotion).judged, settings.learner.teaching),
        redaction=settings.redaction,
        examiner=examiner,
        trial=trial,
    )
    return stage, client, examiner


def _trial(settings: JudgeSettings, engine: Engine | None, renderer: Renderer) -> HintTrial | None:
    """Tries hints on the served model; None if there is none here, or none are to be tried."""
    from afterwit.engines.port import Weights
    from afterwit.judging.engine_judge import EngineJudge
    from afterwit.judging.verdicts import HintTrial

    if engine is None or not settings.follow_tries:
        return None
    weights = Weights.BASE if engine.capabilities.base_weights else Weights.LIVE
    return HintTrial(EngineJudge(engine, renderer, weights=weights, thinking=False), settings)


def practice_stage(
    settings: Settings,
    store: AsyncStore,
    engine: Engine,
    renderer: Renderer,
    client: JudgeClient | None = None,
    examiner: Examiner | None = None,
) -> Practice | None:
    """The practice stage; None if nothing is practised. `client` judges groups of answers, if it can vote."""
    from afterwit.errors import JudgeRefused
    from afterwit.judging.settings import judge_prompts
    from afterwit.practice.stage import Practice

    if not (settings.practice.enabled and settings.learner.enabled):
        return None
    judge, prompts = settings.judge, judge_prompts(settings.judge)

    async def ask(messages: tuple[Message, ...], seed: int) -> Answer:
        if client is None or (examiner is not None and not (await examiner.ability()).votes):
            raise JudgeRefused("this judge does not vote")
        return await client.ask(
            messages, temperature=judge.temperature, max_tokens=prompts.max_tokens, seed=seed
        )

    return Practice(
        store=store,
        engine=engine,
        renderer=renderer,
        settings=settings.practice,
        learner=settings.learner,
        placement=settings.judge.placement,
        redaction=settings.redaction,
        ask=ask,
    )


# Learning


def trainer_of(
    settings: Settings,
    home: Path,
    folder: Path,
    ranks: Ranks | None = None,
    kind: Callable[..., Trainer] | None = None,
) -> Trainer:
    """The learner's core. It loads the model when its policy is first used.

    `ranks` are the learner's processes; None: there is one. `kind` replaces the learner's own trainer.
    """
    from afterwit.chat_format.render import Renderer
    from afterwit.learning.models import device_of
    from afterwit.learning.passes import ALONE
    from afterwit.learning.trainer import Trainer
    from afterwit.objective.terms import TERMS
    from afterwit.planning.gpus import memory_here
    from afterwit.planning.memory import ModelShape, fitting
    from afterwit.weights.weights import read_config

    for term in settings.objective.terms.values():
        if term not in TERMS:
            raise SettingError(f"the objective {settings.objective.objective} has an unknown term, {term}")
    versions, renderer = versions_of(home, folder, settings.versions), Renderer.load(folder)
    learner = learner_settings(settings.learner, home, folder)
    if device_of(learner.device).type == "cpu":
        config = read_config(folder).get_text_config().to_dict()
        with suppress(ValueError):  # the memory of a model with experts is not counted
            learner = fitting(ModelShape.of(config), learner, memory_here())
    more: dict[str, Any] = {
        "settings": learner,
        "objective": settings.objective,
        "placement": settings.judge.placement,
        "teacher": teacher_server(settings, folder),
        "ranks": ranks or ALONE,
    }
    return Trainer(versions, renderer, **more) if kind is None else kind(versions, renderer, **more)


def learner_settings(settings: LearnerSettings, home: Path, folder: Path) -> LearnerSettings:
    """The settings with folders in place of hub ids. SettingError if a tokenizer is not the model's."""
    from afterwit.chat_format.render import require_same_tokenizer
    from afterwit.home.model import model_folder

    for name, value in settings.checkpoints.items():
        other = model_folder(value, home)
        require_same_tokenizer(folder, other, f"learner.{name}")
        settings = replace(settings, **{name: str(other)})  # type: ignore[arg-type]  # both are strings
    return settings


def learn_stage(
    settings: Settings,
    store: Store,
    trainer: Trainer,
    committed: Callable[[Store], object] = lambda store: None,
) -> Learn:
    """The learn stage over a store. It calls `committed` after each commit of a version."""
    from afterwit.learning.passes import Phase
    from afterwit.learning.stage import Learn

    def watch(phase: Phase) -> None:
        if phase is Phase.COMMITTED:
            committed(store)

    return Learn(store, trainer, owner=worker_name("learn"), promotion=settings.promotion, watch=watch)


def teacher_server(settings: Settings, folder: Path) -> TeacherServer | None:
    """The server that `learner.teacher = "server"` names, not contacted yet; None for any other teacher.

    SettingError if the settings name no server whose weights stay the same, or an objective that no server
    can teach.
    """
    from afterwit.engines.server.settings import ServerSettings
    from afterwit.engines.teacher import ServedTeacher, given_ids, require_servable, teacher_top_k
    from afterwit.learning.settings import SERVER

    engine, learner = settings.engine, settings.learner
    if learner.teacher != SERVER:
        return None
    url = learner.teacher_url
    key = key_from(os.environ, learner.teacher_key_env, setting="learner.teacher_key_env")
    if url is None:
        if not isinstance(engine, ServerSettings):
            raise SettingError(
                'learner.teacher is "server", but the engine is embedded: set learner.teacher_url'
            )
        if engine.swap != "adapters":
            raise SettingError(
                f'learner.teacher is "server", but with engine.swap = "{engine.swap}" the weights at '
                f'{", ".join(engine.urls)} change: set learner.teacher_url, or engine.swap = "adapters"'
            )
        url, key = engine.urls[0], engine.key(os.environ)
    require_servable(settings.objective)
    waits = engine if isinstance(engine, ServerSettings) else ServerSettings()
    return ServedTeacher(
        folder,
        url,
        k=teacher_top_k(settings.objective),
        given=given_ids(settings.objective),
        key=key,
        silence_s=waits.silence_s,
        patience_s=waits.patience_s,
    )


def policy_server(settings: Settings, folder: Path) -> TeacherServer | None:
    """The engine's server as one that returns the policy's likeliest ids, for other trainers.

    None if the objective does not learn at these. SettingError if they do not come from a server.
    """
    from afterwit.engines.server.settings import ServerSettings
    from afterwit.engines.teacher import ServedTeacher, given_ids

    engine = settings.engine
    if not (k := given_ids(settings.objective)):
        return None
    if not isinstance(engine, ServerSettings):
        raise SettingError(
            "objective.subset is 'student', whose ids come from the policy's own server: set engine.kind and"
            " engine.url to the server of the trainer, or objective.subset = 'teacher'"
        )
    return ServedTeacher(
        folder,
        engine.urls[0],
        k=k,
        key=engine.key(os.environ),
        silence_s=engine.silence_s,
        patience_s=engine.patience_s,
    )


# Serving


async def engine_of(settings: Settings, folder: Path, *, takes_weights: bool = True) -> Engine:
    """The engine that `engine.kind` names; see `open_engine`."""
    from afterwit.engines.kinds import open_engine

    return await open_engine(folder, settings.engine, takes_weights=takes_weights)


def shown_lessons(settings: Settings, renderer: Renderer) -> Lessons | None:
    """The lessons that prompts show until they are learned; None: no prompt shows any."""
    from afterwit.gateway.prepare import listed
    from afterwit.practice.rounds import untaught

    practice, learner = settings.practice, settings.learner
    if not (practice.at_once and practice.enabled and learner.enabled):
        return None

    def found(store: Store, *, adapter: str, scope: str, now: float) -> str:
        words = untaught(store, adapter, scope, learner.teaching, now=now)
        return listed(words, renderer, most=practice.at_once_lessons, tokens=practice.at_once_tokens)

    return found


def gateway_app(
    settings: Settings,
    engine: Engine,
    renderer: Renderer,
    store: AsyncStore,
    *,
    home: Path,
    versions: Versions,
    token: str,
    wake_judge: Callable[[], None],
    servers: Callable[[], Mapping[str, str]],
) -> GatewayApp:
    """The gateway's application, with the buttons of its page."""
    from afterwit.gateway import backlog
    from afterwit.gateway.app import GatewayApp
    from afterwit.gateway.context import Gateway
    from afterwit.page.app import roll_back

    gateway = Gateway(
        engine=engine,
        renderer=renderer,
        store=store,
        settings=settings.gateway,
        adapters=settings.learner.adapter_policy,
        redaction=settings.redaction,
        practises=settings.practice.enabled and settings.learner.enabled,
        lessons=shown_lessons(settings, renderer),
        unrecorded=home / backlog.FILE,
        token=token,
        wake_judge=wake_judge,
        servers=servers,
    )
    return GatewayApp(gateway, lambda target: roll_back(store, versions, target, now=time.time()))


def publishers_of(
    settings: Settings, engine: Engine, versions: Versions, store: AsyncStore
) -> tuple[Publisher, OwnAdapters | None]:
    """The publish stage, which loads new versions into the engine and records what is served; and personal
    adapters, None if there are none."""
    from afterwit.publish.publisher import OwnAdapters, check_capable, record_served

    learner, personal = settings.learner, settings.learner.adapters != "shared"
    if learner.enabled:
        dtypes = (engine.facts.dtype, learner.dtype)
        check_capable(engine.capabilities, lora_rank=learner.lora_rank, dtypes=dtypes, own_adapters=personal)

    published = partial(record_served, store, versions)
    shared = _publisher(settings, engine, versions, published)
    if not personal:
        return shared, None
    own = OwnAdapters(
        engine,
        lambda adapter: _publisher(settings, engine, versions, published, adapter=adapter, other=shared),
        versions.chains,
        most=settings.publish.adapters,
        idle_s=settings.publish.idle_s,
        now=time.monotonic,
    )
    return shared, own


async def follow_versions(
    settings: Settings, engine: Engine, *, home: Path, folder: Path
) -> Coroutine[None, None, None]:
    """Load the newest version of a trainer's home into an engine that has no store.

    Await the coroutine that is returned to load each later one too, until it is cancelled.
    """
    from afterwit.worker import BackOff, Signals

    async def published(number: int) -> None:
        log.info("publish: serving version %d", number)

    async def report(ok: bool, message: str) -> None:
        if not ok:
            log.warning("publish: %s", message)

    follower = _publisher(settings, engine, versions_of(home, folder, settings.versions), published)
    await follower.start()
    poll_s = settings.publish.poll_s
    back_off = BackOff(base_s=poll_s, max_s=60.0)
    return follower.run(Signals(), report=report, poll_s=poll_s, back_off=back_off)


def _publisher(
    settings: Settings,
    engine: Engine,
    versions: Versions,
    published: Callable[[int], Awaitable[object]],
    *,
    adapter: str = SHARED,
    other: Publisher | None = None,
) -> Publisher:
    from afterwit.publish.publisher import Publisher

    return Publisher(
        engine=engine,
        checkpoints=versions.of(adapter),
        published=published,
        dtype=settings.learner.dtype,
        keep_versions=settings.learner.keep_versions,
        adapter=adapter,
        one_at_a_time=None if other is None else other.one_at_a_time,
    )


# Tracking


@contextmanager
def tracking(settings: Settings, home: Path) -> Iterator[Callable[[Store], None]]:
    """A learner's tracking: call it with the store after each commit of a version."""
    from afterwit.tracking import traces
    from afterwit.tracking.trackers import Trackers

    trackers, stop_tracing = Trackers(settings.tracking, home), traces.start(settings.tracking.otlp_url)

    def committed(store: Store) -> None:
        try:
            trackers.committed(store)
            traces.trained(store)
        except StoreError as error:  # the version is committed: the learner goes on
            log.warning("a version was not sent to the trackers: %s", error)

    try:
        yield committed
    finally:
        trackers.close()
        stop_tracing()
