"""`afterwit serve` as a program: starts the stages, says where it listens, stops cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import uvloop
from rich.console import Console
from rich.status import Status
from rich.text import Text

from afterwit import build
from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.files import exclusive
from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings
from afterwit.doctor import model as self_tests
from afterwit.doctor.finding import require
from afterwit.engines.port import Engine
from afterwit.engines.server.settings import ServerSettings
from afterwit.errors import SettingError, VersionsRefused, VersionsUnavailable
from afterwit.gateway.auth import is_loopback
from afterwit.gateway.http_server import Listener, bound_socket
from afterwit.home.home import make_home, refuse_another_home, remember_model
from afterwit.home.model import model_folder
from afterwit.judging.ability import Examiner
from afterwit.judging.check_stage import STAGE as JUDGE_CHECKS
from afterwit.judging.verdicts import JudgeClient
from afterwit.printing.terminal import Terminal
from afterwit.publish.own_adapters import EngineOfMany
from afterwit.retry import BackOff
from afterwit.running import learner_process
from afterwit.running.engine_process import EngineProcess
from afterwit.running.logs import log_plainly
from afterwit.running.ranks import refuse_torchrun
from afterwit.store import AsyncStore
from afterwit.worker import Signals

JUDGE_WITHIN_S = 3.0
"""Seconds that the first lines wait for what is known of the judge."""


def run(
    settings: Settings, home: Path, stages: tuple[str, ...], *, servers: Sequence[EngineProcess] = ()
) -> None:
    """Run the stages until SIGINT or SIGTERM, beside `servers` of our own.

    A second signal stops at once.
    """
    log_plainly()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, home, stages, servers))


async def _serve(
    settings: Settings, home: Path, stages: tuple[str, ...], servers: Sequence[EngineProcess]
) -> None:
    console = Terminal(stderr=True)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stopping, stop, number)
    async with AsyncExitStack() as stack:
        if servers:
            stack.push_async_callback(_stop_all, servers)
            if not await _started(servers, settings, console, stop):
                return
        with console.status("loading the model"):
            gone = partial(_gone, servers)
            runtime = await stack.enter_async_context(Runtime(settings, home, stages, servers=gone))
        spare_what_stays()
        await _judge_first(console, runtime, stack)
        greet(console, runtime, home)
        await stop.wait()
        console.print("stopping: running answers finish first")


async def _judge_first(console: Console, runtime: Runtime, stack: AsyncExitStack) -> None:
    """Say what is wrong with the judge: before all else if it is known soon, else when it is known."""
    if runtime.examiner is None:
        return
    told = asyncio.create_task(runtime.examiner.told())
    stack.callback(told.cancel)
    done, _ = await asyncio.wait({told}, timeout=JUDGE_WITHIN_S)
    if done:
        _say_fault(console, told)
    else:
        console.print("judge: it is being asked three questions with known answers; the result follows")
        told.add_done_callback(partial(_say_fault, console))


def _say_fault(console: Console, told: asyncio.Task[str | None]) -> None:
    if not told.cancelled() and (fault := told.result()) is not None:
        console.print(Text(fault, style="bold red"), soft_wrap=True)


async def _started(
    servers: Sequence[EngineProcess], settings: Settings, console: Console, stop: asyncio.Event
) -> bool:
    """Whether all servers answer; False if they were told to stop first. Raises the first error of any."""
    assert isinstance(settings.engine, ServerSettings)
    within_s = settings.engine.start_s
    with console.status("starting the servers") as status:
        for server in servers:
            console.print(f"the {server.name} server writes its log to {server.log}")
        stopped = asyncio.create_task(stop.wait())
        steps: dict[str, str] = {}
        left = {
            asyncio.create_task(
                each.start(within_s=within_s, progress=partial(_show, status, steps, each.name))
            )
            for each in servers
        }
        try:
            while left and not stopped.done():
                done, _ = await asyncio.wait({stopped, *left}, return_when=asyncio.FIRST_COMPLETED)
                for task in done & left:
                    task.result()
                left -= done
            return not left
        finally:
            for task in (stopped, *left):
                task.cancel()
            await asyncio.gather(stopped, *left, return_exceptions=True)


async def _stop_all(servers: Sequence[EngineProcess]) -> None:
    await asyncio.gather(*(server.stop() for server in servers))


def _gone(servers: Sequence[EngineProcess]) -> dict[str, str]:
    return {each.name: each.trouble for each in servers if each.trouble is not None}


def _show(status: Status, steps: dict[str, str], name: str, step: str) -> None:
    """How far each server is, in one line."""
    steps[name] = step
    status.update(Text("; ".join(f"{name} server: {step}" for name, step in steps.items())))


def _stopping(stop: asyncio.Event, number: int) -> None:
    if stop.is_set():
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    stop.set()


def greet(console: Console, runtime: Runtime, home: Path) -> None:
    """Say what is served, and where."""
    for stage, why in runtime.off.items():
        console.print(f"{stage}: {why}")
    if runtime.url is None or runtime.engine is None:
        console.print(f"running {', '.join(runtime.stages)} over {home}")
        return
    model, version = runtime.engine.facts.model, runtime.engine.version
    console.print(Text.assemble("serving ", (model, "bold"), f", version {version}"))
    where = Text.assemble("point an agent at ", (runtime.url, "bold"), f", model name afterwit; home {home}")
    console.print(where, soft_wrap=True)


STAGES = ("gateway", "judge", "learn")


HOUSEKEEPING_EVERY_S = 60.0


LEARNER_STOP_S = 20.0
"""Seconds that the learner may take to finish or give up its update at the end."""


log = logging.getLogger(__name__)


def switched_off(settings: Settings) -> dict[str, str]:
    """The stages that the settings switch off, each with a sentence on what that means."""
    off = {}
    if not settings.judge.enabled:
        off["judge"] = "switched off (judge.enabled = false): turns are recorded and wait to be judged"
    if not settings.learner.enabled:
        off["learn"] = "switched off (learner.enabled = false): nothing trains, judged turns wait"
    return off


class Runtime:
    """An async context in which the chosen stages run. `url`: where clients call, None without a gateway."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        stages: tuple[str, ...] = STAGES,
        *,
        judge: JudgeClient | None = None,
        servers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`judge` replaces the judge that the settings name. `servers` says why one that this process started
        is gone, by its name."""
        for stage in stages:
            if stage not in STAGES:
                raise SettingError(f"--stages {stage}: the stages are {', '.join(STAGES)}")
        self._settings, self._home, self._judge, self._servers = settings, home, judge, servers
        self.off = {stage: why for stage, why in switched_off(settings).items() if stage in stages}
        """The stages that were chosen and do not run, each with the reason."""
        self.stages = tuple(stage for stage in stages if stage not in self.off)
        if not self.stages:
            raise SettingError(f"nothing is left to run: {'; '.join(self.off.values())}")
        self._stack = AsyncExitStack()
        self._signals = Signals()
        self.url: str | None = None
        self.engine: Engine | None = None
        self.examiner: Examiner | None = None
        """What finds out whether the judge can judge; None: it is taken to be able."""
        self.store: AsyncStore

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._signals.stop.set()
        self._signals.wake.set()
        await self._stack.aclose()

    async def _start(self) -> None:
        """Start the parts in order: faults of model, store and address are found before the port listens."""
        folder = model_folder(self._settings.model, self._home)
        if self._settings.learner.enabled:
            build.learner_settings(self._settings.learner, self._home, folder)  # refused before anything runs
            build.check_teacher(self._settings, folder)
        if "learn" in self.stages:
            refuse_torchrun()
            _require_module("torch")
        self._claim(make_home(self._home))
        build.check_tracking(self._settings)
        self._stack.push_async_callback(asyncio.to_thread, build.start_tracing(self._settings))
        renderer = Renderer.load(folder, tool_call_parser=self._settings.gateway.tool_call_parser)
        versions = build.versions_of(self._home, folder, self._settings.versions)
        all_seen = await _follow(versions)
        require(self_tests.check(folder, versions, self._settings.judge.placement))
        store = build.store_of_model(self._settings, self._home, folder)
        remember_model(self._home, folder)
        self.store = build.async_store(store)
        self._stack.push_async_callback(self.store.close)
        if self._settings.learner.enabled and all_seen:
            url = self._settings.store.url
            await self.store.call(lambda store: refuse_another_home(url, store, versions))
        for stage, why in self.off.items():
            await self._reporter(stage)(True, why)
        sock = await self._reserve() if "gateway" in self.stages else None
        if sock is not None:
            self.engine = await self._start_engine(folder, versions)
        if "judge" in self.stages:
            wake = asyncio.get_running_loop().call_soon_threadsafe
            self._stack.enter_context(store.listening(lambda: wake(self._signals.wake.set)))
            await self._start_judge(renderer)
        if "learn" in self.stages:
            self._spawn(self._learn())
        self._spawn(self._housekeeping())
        if sock is not None and self.engine is not None:
            await self._listen(sock, self.engine, renderer, versions)

    def _claim(self, home: Path) -> None:
        """Lock each stage: two processes over one home would overwrite each other's status."""
        for stage in self.stages:
            purpose = f"only one `afterwit serve` may run the stage {stage} over {home}"
            self._stack.enter_context(exclusive(home / f".{stage}.lock", purpose=purpose, wait=False))

    async def _reserve(self) -> socket.socket:
        """The bound address; nothing listens on it yet."""
        serve = self._settings.serve
        await self._check_address(serve.host)
        sock = bound_socket(serve.host, serve.port)
        self._stack.callback(sock.close)
        return sock

    async def _start_engine(self, folder: Path, versions: Versions) -> Engine:
        """Load the model, then its newest version: the first request already meets what was learned."""
        learns = self._settings.learner.enabled or versions.newest() > 0
        engine = await build.engine_of(self._settings, folder, takes_weights=learns)
        self._stack.push_async_callback(engine.close)
        settings = self._settings.publish
        publisher = build.publisher_of(self._settings, engine, versions, self.store)
        own = build.own_adapters_of(self._settings, engine, versions, self.store, publisher)
        report = self._reporter("publish")
        back_off = BackOff(base_s=settings.poll_s, max_s=60.0, random=random.random)
        await publisher.start()
        if own is not None:
            await own.step()
        self._spawn(
            publisher.run(
                self._signals,
                report=report,
                poll_s=settings.poll_s,
                back_off=back_off,
                others=None if own is None else own.step,
            )
        )
        return engine if own is None else EngineOfMany(engine, own)

    async def _listen(
        self, sock: socket.socket, engine: Engine, renderer: Renderer, versions: Versions
    ) -> None:
        """Start to listen. It starts last and stops first, so that all it needs runs while it answers."""
        wake = self._signals.wake.set
        app = build.gateway_app(
            self._settings,
            engine,
            renderer,
            self.store,
            versions=versions,
            wake_judge=wake,
            servers=self._servers,
        )
        listener = Listener(app, sock)
        await listener.start()
        self._stack.push_async_callback(listener.stop, self._settings.serve.drain_s)
        self.url = listener.url

    async def _check_address(self, host: str) -> None:
        if is_loopback(host):
            return
        keys = await self.store.call(lambda store: store.keys())
        if any(key.revoked is None for key in keys):
            return
        raise SettingError(
            f"{host} can be reached from other machines, and there is no API key: make one with "
            "`afterwit keys add NAME`, or listen on 127.0.0.1"
        )

    async def _start_judge(self, renderer: Renderer) -> None:
        judge = self._settings.judge
        client = self._judge or build.judge_client(judge, self.engine, renderer)
        close: Callable[[], Awaitable[None]] | None = getattr(client, "close", None)
        if close is not None:
            self._stack.push_async_callback(close)
        if self._judge is None:
            self.examiner = build.examiner_of(judge, self.store, client, self.engine, renderer)
        stage = build.judge_stage(self._settings, self.store, client, examiner=self.examiner)
        self._spawn(stage.run(self._signals))
        report = self._reporter(JUDGE_CHECKS)
        checks = build.judge_checks(self._settings, self.store, client, self.engine, renderer, report=report)
        self._spawn(checks.run(self._signals))

    async def _learn(self) -> None:
        await learner_process.keep_alive(
            self._settings,
            self._home,
            pause_s=self._settings.serve.learner_restart_s,
            stop_s=LEARNER_STOP_S,
            report=self._reporter("learn"),
        )

    async def _housekeeping(self) -> None:
        report = self._reporter("housekeeping")
        await build.housekeeping_of(self._settings, self._home, self.store, report).run(
            self._signals,
            poll_s=HOUSEKEEPING_EVERY_S,
            back_off=BackOff(base_s=HOUSEKEEPING_EVERY_S, max_s=3600.0, random=random.random),
        )

    def _reporter(self, stage: str) -> Callable[[bool, str], Awaitable[None]]:
        async def report(ok: bool, message: str) -> None:
            await self.store.call(lambda store: store.set_status(stage, ok, message, now=time.time()))

        return report

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._stack.push_async_callback(_cancel, task)


async def _follow(versions: Versions) -> bool:
    """Learn of other machines' versions before anything is loaded. VersionsRefused if that will never do.

    False if they cannot be seen now: what is on this disk serves; the publisher says so, and tries again.
    """
    try:
        await asyncio.to_thread(versions.follow)
    except VersionsRefused:
        raise
    except VersionsUnavailable as error:
        log.warning("publish: %s; what is on this disk serves", error)
        return False
    return True


def _require_module(name: str) -> None:
    """ModuleNotFoundError before anything starts, in place of a learner process that dies of it."""
    if find_spec(name) is None:
        raise ModuleNotFoundError(f"there is no module {name}", name=name)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


YOUNG = 20_000
"""Objects that are made before the collector looks for cycles among them; Python's own number is 700. Most of
what a request makes dies by itself, and looking at it took a fifth of the request's CPU time (`benchmarks
gateway`, row G2)."""


def spare_what_stays() -> None:
    """Leave alone what a started process keeps for ever, and look at the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
