"""`afterwit serve` as a program: starts the stages, prints where it listens, stops cleanly."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import uvloop
from rich.text import Text

from afterwit import build
from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.manifest import exclusive
from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings
from afterwit.doctor.finding import require
from afterwit.doctor.model import check_model
from afterwit.engines.model_files import fingerprint
from afterwit.engines.port import Engine
from afterwit.engines.server.process import EngineProcess
from afterwit.engines.server.settings import ServerSettings
from afterwit.errors import SettingError, VersionsRefused, VersionsUnavailable
from afterwit.gateway.app import PAGE
from afterwit.gateway.auth import is_loopback
from afterwit.gateway.context import STORE_WITHIN_S
from afterwit.gateway.http_server import Listener, bound_socket
from afterwit.gateway.limits import InFlight
from afterwit.home.home import (
    STAGES,
    make_home,
    page_token,
    refuse_another_home,
    remember_model,
    stage_lock,
)
from afterwit.home.model import model_folder
from afterwit.judging.ability import JUDGE_CHECKS, Examiner, keep_checking
from afterwit.judging.exam import Ability
from afterwit.judging.verdicts import JudgeClient
from afterwit.page.access import TOKEN
from afterwit.practice.stage import STAGE as PRACTICE
from afterwit.printing.terminal import Terminal, Working, end_at_signals, working
from afterwit.running import housekeeping, learner_process
from afterwit.running.logs import set_up
from afterwit.running.ranks import refuse_torchrun
from afterwit.store import AsyncStore
from afterwit.text import counted
from afterwit.tracking import traces
from afterwit.worker import BackOff, Report, Signals

SWITCHED_OFF = {
    "judge": "switched off (judge.enabled = false): turns are recorded and wait to be judged",
    "learn": "switched off (learner.enabled = false): nothing trains, judged turns wait",
}
"""The effect of the settings that switch a stage off."""
STARTING = "the learner is starting"
"""Its status until its process, which imports much, reports one."""
EXAMINED = "it is being tested on replies of known meaning; turns wait for the result"
"""The judge's status until it is known."""
JUDGE_WITHIN_S, JUDGE_EVERY_S = 3.0, 30.0
"""Seconds that the first lines wait for the examination of the judge, and between two lines about it."""
LEARNER_STOP_S = 20.0
"""Seconds that the learner may take to finish or give up its update at the end."""
OPEN_FILES = 65_536
YOUNG = 20_000
"""Objects that are made before the collector looks for cycles among them; Python's own number is 700. Most of
a request's objects die by themselves, and looking at them took a fifth of the request's CPU time (`benchmarks
gateway`, row G2)."""

log = logging.getLogger(__name__)


def run(
    settings: Settings,
    home: Path,
    stages: tuple[str, ...],
    *,
    servers: Sequence[EngineProcess] = (),
    locked: bool = False,
) -> None:
    """Start `servers` and run the stages until SIGINT or SIGTERM. A second signal stops at once, and so does
    any before it serves: nothing was answered yet, and while modules load the loop cannot read a signal.

    `locked`: the caller holds `stage_locks`, as one with `servers` must before it makes them.
    """
    set_up(logging.INFO)
    raise_open_files()
    end_at_signals("stopped: nothing was served yet", servers)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, home, stages, servers, locked=locked))


async def _serve(
    settings: Settings, home: Path, stages: tuple[str, ...], servers: Sequence[EngineProcess], *, locked: bool
) -> None:
    console, loop, stop = Terminal(stderr=True), asyncio.get_running_loop(), asyncio.Event()

    def stopping(number: int) -> None:
        if stop.is_set():
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    async def stop_servers() -> None:
        await asyncio.gather(*(server.stop() for server in servers))

    def troubles() -> dict[str, str]:
        return {each.name: each.trouble for each in servers if each.trouble is not None}

    async with AsyncExitStack() as stack:
        if servers:
            stack.push_async_callback(stop_servers)
            await _started(servers, settings, console)
        with working("loading the model", console):
            runtime = await stack.enter_async_context(
                Runtime(settings, home, stages, servers=troubles, locked=locked)
            )
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping, number)
        spare_what_stays()
        await _judge_first(console, runtime, stack)
        greet(console, runtime, home)
        await stop.wait()
        words = "; ".join(["stopping", *runtime.waits_for(), "Ctrl-C again stops at once"])
        console.say(words)


async def _started(servers: Sequence[EngineProcess], settings: Settings, console: Terminal) -> None:
    """Start all servers, and wait until they answer. Raises the first error of any."""
    assert isinstance(settings.engine, ServerSettings)
    within_s = settings.engine.start_s
    steps: dict[str, str] = {}
    with working("starting the servers", console) as line:

        def show(name: str, step: str) -> None:
            steps[name] = step
            line.step("; ".join(f"{name} server: {step}" for name, step in steps.items()))

        for server in servers:
            console.print(f"the {server.name} server writes its log to {server.log}")
        starting = [
            asyncio.create_task(each.start(within_s=within_s, progress=partial(show, each.name)))
            for each in servers
        ]
        try:
            await asyncio.gather(*starting)
        finally:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)


async def _judge_first(console: Terminal, runtime: Runtime, stack: AsyncExitStack) -> None:
    """Print what is wrong with the judge: first of all if it is known soon, otherwise when it is known."""
    if runtime.examiner is None:
        return

    name, doing = runtime.examiner.examination.name, Working(None)
    doing.step("asking about exchanges of known outcome")
    runtime.examiner.examination.progress = doing.step

    def print_ability(examined: asyncio.Task[Ability]) -> None:
        if examined.cancelled():
            return
        if (fault := examined.result().fault(name)) is not None:
            console.say(fault, style="bold red")
        elif not examined.result().hints:
            console.say(f"judge: {examined.result().described()}")

    async def print_progress() -> None:
        while not examined.done():
            waits = "judge: turns without a hint of yours wait for its test, and answers take longer:"
            console.print(waits, doing, soft_wrap=True)
            await asyncio.wait({examined}, timeout=JUDGE_EVERY_S)

    examined = asyncio.create_task(runtime.examiner.told())
    stack.callback(examined.cancel)
    done, _ = await asyncio.wait({examined}, timeout=JUDGE_WITHIN_S)
    if not done:
        examined.add_done_callback(print_ability)
        stack.callback(asyncio.create_task(print_progress()).cancel)
        return
    print_ability(examined)


def greet(console: Terminal, runtime: Runtime, home: Path) -> None:
    """Print what is served, and where."""
    for stage, why in runtime.off.items():
        console.print(f"{stage}: {why}")
    if runtime.url is None or runtime.engine is None:
        console.print(f"running {', '.join(runtime.stages)} over {home}")
        return
    model, version = runtime.engine.facts.model, runtime.engine.version
    console.print(Text.assemble("serving ", (model, "bold"), f", version {version}"))
    where = Text.assemble("point an agent at ", (runtime.url, "bold"), f", model name afterwit; home {home}")
    console.say(where)
    console.say(Text.assemble("the page is at ", (str(runtime.page), "bold")))
    if runtime.practises:
        console.say("corrections are practised while nothing else waits: `afterwit lessons` lists them")


def switched_off(settings: Settings, stages: Sequence[str]) -> dict[str, str]:
    """Those of the stages that the settings switch off, each with the reason."""
    enabled = {"judge": settings.judge.enabled, "learn": settings.learner.enabled}
    return {stage: SWITCHED_OFF[stage] for stage in stages if not enabled.get(stage, True)}


@contextmanager
def stage_locks(settings: Settings, home: Path, stages: Sequence[str]) -> Iterator[None]:
    """Hold the home's lock of each stage that is not switched off. AlreadyRunning if another process has one:
    two over one home would overwrite each other's status."""
    make_home(home)
    off = switched_off(settings, stages)
    with ExitStack() as stack:
        for stage in stages:
            if stage not in off:
                purpose = f"only one `afterwit serve` may run the stage {stage} over {home}"
                stack.enter_context(exclusive(stage_lock(home, stage), purpose=purpose, wait=False))
        yield


class Runtime:
    """An async context in which the chosen stages run. `url`: the address for clients, None without a
    gateway."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        stages: tuple[str, ...] = STAGES,
        *,
        judge: JudgeClient | None = None,
        servers: Callable[[], Mapping[str, str]] = dict,
        locked: bool = False,
    ) -> None:
        """`judge` replaces the judge that the settings name. `servers` returns why servers that this process
        started are down, by name. `locked`: the caller holds `stage_locks`."""
        for stage in stages:
            if stage not in STAGES:
                raise SettingError(f"--stages {stage}: the stages are {', '.join(STAGES)}")
        self._settings, self._home, self._judge, self._servers = settings, home, judge, servers
        self._locked = locked
        self.off = switched_off(settings, stages)
        """The stages that were chosen and do not run, each with the reason."""
        self.stages = tuple(stage for stage in stages if stage not in self.off)
        if not self.stages:
            raise SettingError(f"nothing is left to run: {'; '.join(self.off.values())}")
        self._stack = AsyncExitStack()
        self._signals = Signals()
        self.url: str | None = None
        self.page: str | None = None
        """The address that opens the page in a browser; without keys it holds the token."""
        self.engine: Engine | None = None
        self.practises = False
        """Whether corrections are practised here."""
        self.examiner: Examiner | None = None
        """Finds out whether the judge can judge; None: it is assumed to be able."""
        self.store: AsyncStore
        self.in_flight: InFlight | None = None
        """The answers that run; None without a gateway."""

    def waits_for(self) -> list[str]:
        """The work that its end would wait for, each with the longest wait."""
        found = []
        if self.in_flight is not None and (count := self.in_flight.count):
            found.append(
                f"{counted(count, 'running answer')} may take {self._settings.serve.drain_s:g} s more"
            )
        if "learn" in self.stages:
            found.append(f"the learner may take {LEARNER_STOP_S:g} s to end its update")
        return found

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
        settings, home, learner = self._settings, self._home, self._settings.learner
        folder = model_folder(settings.model, home)
        if learner.enabled:  # refused before anything runs
            build.learner_settings(learner, home, folder)
            build.teacher_server(settings, folder)
        if "learn" in self.stages:
            refuse_torchrun()
            if find_spec("torch") is None:  # else the learner's process would die at each restart
                raise ModuleNotFoundError("there is no module torch", name="torch")
        if not self._locked:
            self._stack.enter_context(stage_locks(settings, home, self.stages))
        settings.tracking.require_libraries()
        self._stack.push_async_callback(asyncio.to_thread, traces.start(settings.tracking.otlp_url))
        renderer = Renderer.load(folder, tool_call_parser=settings.gateway.tool_call_parser)
        versions = build.versions_of(home, folder, settings.versions)
        all_seen = await _follow(versions)
        require(check_model(folder, lambda: renderer, versions, settings.judge.placement))
        store = build.store_of_model(settings, home, folder, bind=False)
        self.store = build.async_store(store)
        self._stack.push_async_callback(self.store.close)
        if learner.enabled and all_seen:
            await self.store.call(lambda store: refuse_another_home(settings.store.url, store, versions))
        for stage, why in self.off.items():
            await self._reporter(stage)(True, why)
        sock = await self._reserve() if "gateway" in self.stages else None
        if sock is not None:
            self.engine = await self._start_engine(folder, versions)
        if "judge" in self.stages:
            wake = asyncio.get_running_loop().call_soon_threadsafe
            self._stack.enter_context(store.listening(lambda: wake(self._signals.wake.set)))
            await self._reporter("judge")(True, EXAMINED)
            self._start_judge(renderer)
        await self.store.call(lambda store: store.bind(fingerprint(folder)))  # a refused start binds nothing
        remember_model(home, folder)
        if "learn" in self.stages:
            restart_s, report = settings.serve.learner_restart_s, self._reporter("learn")
            await report(True, STARTING)
            self._spawn(
                learner_process.keep_alive(
                    settings, home, pause_s=restart_s, stop_s=LEARNER_STOP_S, report=report
                )
            )
        report = self._reporter(housekeeping.STAGE)
        self._spawn(housekeeping.keep_house(settings, home, self.store, self._signals, report))
        if sock is not None and self.engine is not None:
            await self._listen(sock, self.engine, renderer, versions)

    async def _reserve(self) -> socket.socket:
        """The bound address; nothing listens on it yet. SettingError if others could call without a key."""
        host, port = self._settings.serve.host, self._settings.serve.port
        if not is_loopback(host):
            keys = await self.store.call(lambda store: store.keys())
            if all(key.revoked is not None for key in keys):
                raise SettingError(
                    f"{host} can be reached from other machines, and there is no API key: make one with "
                    "`afterwit keys add NAME`, or listen on 127.0.0.1"
                )
        sock = bound_socket(host, port)
        self._stack.callback(sock.close)
        return sock

    async def _start_engine(self, folder: Path, versions: Versions) -> Engine:
        """Load the model, then its newest version, so that the first request meets what was learned."""
        settings, poll_s = self._settings, self._settings.publish.poll_s
        learns = settings.learner.enabled or versions.newest() > 0
        engine = await build.engine_of(settings, folder, takes_weights=learns)
        self._stack.push_async_callback(engine.close)
        publisher, own = build.publishers_of(settings, engine, versions, self.store)
        await publisher.start()
        if own is not None:
            await own.step()
        self._spawn(
            publisher.run(
                self._signals,
                report=self._reporter("publish"),
                poll_s=poll_s,
                back_off=BackOff(base_s=poll_s, max_s=60.0),
                others=None if own is None else own.step,
            )
        )
        return own or engine

    async def _listen(
        self, sock: socket.socket, engine: Engine, renderer: Renderer, versions: Versions
    ) -> None:
        """Start to listen. The listener starts last and stops first, so that all it needs runs meanwhile."""
        app = build.gateway_app(
            self._settings,
            engine,
            renderer,
            self.store,
            home=self._home,
            versions=versions,
            token=page_token(self._home),
            wake_judge=self._signals.wake.set,
            servers=self._servers,
        )
        listener, self.in_flight = Listener(app, sock), app.in_flight
        app.gateway.backlog.open()
        self._stack.push_async_callback(app.gateway.backlog.close, STORE_WITHIN_S)
        await listener.start()
        self._stack.push_async_callback(listener.stop, self._settings.serve.drain_s)
        self.url = listener.url
        keys = app.gateway.keys
        await keys.refresh()
        self.page = f"{listener.root}{PAGE}" + ("" if keys.keyed else f"?{TOKEN}={app.gateway.token}")

    def _start_judge(self, renderer: Renderer) -> None:
        stage, client, self.examiner = build.judge_stage(
            self._settings, self.store, self.engine, renderer, self._judge
        )
        if (close := getattr(client, "close", None)) is not None:
            self._stack.push_async_callback(close)
        self._spawn(stage.run(self._signals))
        if self.engine is not None:
            practice = build.practice_stage(
                self._settings, self.store, self.engine, renderer, client, self.examiner
            )
            if practice is not None:
                self.practises = True
                self._spawn(practice.run(self._signals, self._reporter(PRACTICE)))
        every_s, report = self._settings.judge.check_every_s, self._reporter(JUDGE_CHECKS)
        self._spawn(keep_checking(self.store, self._signals, report, every_s=every_s))

    def _reporter(self, stage: str) -> Report:
        async def report(ok: bool, message: str) -> None:
            await self.store.call(lambda store: store.set_status(stage, ok, message, now=time.time()))

        return report

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it until it ends, or until this context does."""
        task = asyncio.create_task(work)

        async def cancel() -> None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        self._stack.push_async_callback(cancel)


async def _follow(versions: Versions) -> bool:
    """Read other machines' versions before anything is loaded. VersionsRefused if that will never work.

    False if they cannot be read now: what is on this disk serves; the publisher reports it, and tries again.
    """
    try:
        await asyncio.to_thread(versions.follow)
    except VersionsRefused:
        raise
    except VersionsUnavailable as error:
        log.warning("publish: %s; versions on this disk serve", error)
        return False
    return True


def raise_open_files() -> None:
    """Raise the soft limit of open files: 1,024 is little for connections, the store, and versions."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def spare_what_stays() -> None:
    """Exclude what a started process keeps from garbage collection, and collect the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
