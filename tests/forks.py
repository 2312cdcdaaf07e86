"""`pytest -p tests.forks`: runs the tests on every core, in forks of the process that collected them.

With pytest-xdist each process imports torch and collects all tests, which is a tenth of the whole run's CPU
time on two cores. A fork has both already. Libraries survive a fork on Linux only.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain, count, groupby, islice, pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess

import pytest
from coverage import Coverage
from hypothesis import given, settings
from hypothesis.strategies import integers

PROCESSES = min(len(os.sched_getaffinity(0)), 8)
SIGN = "sign of life"
ASKS, RUNS, ENDS = "asks", "runs", "ends"
"""Messages of a fork: it needs more tests, begins the next one, is done. All others are reports."""
CHUNK = 16
"""Most tests that a process takes at a time."""

SHARED = ("anthropic", "openai.lib.streaming.chat", "openai.lib.streaming.responses", "PIL.PngImagePlugin")
"""Modules that take long to import, and that tests of several files import only when they run."""


def temporary(config: pytest.Config) -> pytest.TempPathFactory:
    """The factory of the `tmp_path` folders."""
    factory: pytest.TempPathFactory = vars(config)["_tmp_path_factory"]
    return factory


class Sender:
    """In a fork, in place of the terminal: sends what is reported to the first process."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config, self._pipe = config, pipe
        self._all = config.option.durations is not None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Nothing reads the keywords, nor that a setup or teardown passed unless `--durations` lists it."""
        if self._all or report.when == "call" or not report.passed:
            report.keywords = {}
            hook = self._config.hook
            self._pipe.send(hook.pytest_report_to_serializable(config=self._config, report=report))


def in_fork(session: pytest.Session, number: int, pipe: Connection) -> None:
    """Run the tests that the first process hands out, until none are left."""
    config = session.config
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(Sender(config, pipe))
    capture = plugins.getplugin("capturemanager")  # by itself it writes to the first process's file
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    folders = temporary(config)
    folders._basetemp = folders.getbasetemp() / f"process-{number}"
    folders._basetemp.mkdir()

    def handed_out() -> Iterator[pytest.Item]:
        pipe.send(ASKS)
        while chunk := pipe.recv():
            yield from (session.items[place] for place in chunk)
            pipe.send(ASKS)

    for item, following in pairwise(chain(handed_out(), [None])):
        pipe.send(RUNS)
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    if measured := Coverage.current():
        measured.stop()
        measured.save()
    pipe.send(ENDS)


class SignOfLife:
    """While tests are collected, or a test is long: prints for how long no test has ended."""

    EVERY_S = 8.0

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter, self._ended = reporter, threading.Event()
        self._last = time.monotonic()
        self.prints = threading.Lock()
        """Held while it does, and by who forks: a fork must not inherit a locked terminal."""
        threading.Thread(target=self._watch, daemon=True).start()

    def pytest_runtest_logreport(self) -> None:
        self._last = time.monotonic()

    def pytest_sessionfinish(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        said = self._last
        while not self._ended.wait(1.0):
            now = time.monotonic()
            if now - max(said, self._last) >= self.EVERY_S:
                said = now
                with self.prints:
                    self._reporter.write(f" ({now - self._last:.0f} s without a result) ", flush=True)


@dataclass(slots=True)
class Fork:
    """One of the forks, as the first process sees it."""

    process: ForkProcess
    running: int | None = None
    """The place of the test that runs."""
    waiting: deque[int] = field(default_factory=deque)
    """The places of its next tests."""


class Forks:
    """In the first process: hands out the tests, and passes on what is reported."""

    def __init__(self, session: pytest.Session, sign: SignOfLife) -> None:
        self._session, self._sign = session, sign
        self._left = deque(range(len(session.items)))
        self._forks: dict[Connection, Fork] = {}
        self._numbers = count()

    def run(self) -> None:
        try:
            for _ in range(PROCESSES):
                self._start()
            while self._forks:
                ready = wait(self._forks)
                for pipe in [pipe for pipe in self._forks if pipe in ready]:
                    self._hear(pipe)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
        finally:
            for fork in self._forks.values():
                fork.process.kill()

    def _start(self) -> None:
        here, there = ForkContext().Pipe()
        process = ForkProcess(target=in_fork, args=(self._session, next(self._numbers), there))
        with self._sign.prints:
            process.start()
        there.close()
        self._forks[here] = Fork(process)

    def _hear(self, pipe: Connection) -> None:
        fork = self._forks[pipe]
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            message = ENDS
            self._died(fork)
        if message == ASKS:
            chunk = self._chunk()
            fork.waiting.extend(chunk)
            with suppress(OSError):  # a dead fork's end is read next
                pipe.send(chunk)
        elif message == RUNS:
            fork.running = fork.waiting.popleft()
        elif message == ENDS:
            del self._forks[pipe]
            fork.process.join(10.0)
            fork.process.kill()
        else:
            config = self._session.config
            self._report(config.hook.pytest_report_from_serializable(config=config, data=message))

    def _chunk(self) -> list[int]:
        """The next tests, of one file. The fewer are left, the fewer, so that all processes end at about the
        same time."""
        most = max(1, min(CHUNK, len(self._left) // (4 * PROCESSES)))
        of_one_file = groupby(islice(self._left, most), key=lambda place: self._session.items[place].path)
        chunk = next(([*places] for _, places in of_one_file), [])
        for _ in chunk:
            self._left.popleft()
        return chunk

    def _died(self, fork: Fork) -> None:
        """Let another fork run what this one had left: a test ended its process."""
        fork.process.join()
        code = fork.process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        if fork.running is None:
            raise self._session.Failed(f"a process ended before its first test: {how}")
        test = self._session.items[fork.running]
        self._report(
            pytest.TestReport(
                nodeid=test.nodeid,
                location=test.location,
                keywords={},
                outcome="failed",
                longrepr=f"{test.nodeid}: its process ended: {how}",
                when="call",
            )
        )
        self._left.extendleft(reversed(fork.waiting))
        self._start()

    def _report(self, report: pytest.TestReport) -> None:
        hook = self._session.config.hook
        hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    plugins.register(SignOfLife(plugins.getplugin("terminalreporter")), SIGN)


def pytest_collection_finish() -> None:
    """Do once what every fork would do: import `SHARED`, and find the constants in the modules of the house,
    as hypothesis does for one draw in twenty."""
    for module in SHARED:
        import_module(module)

    @settings(max_examples=100, database=None)
    @given(integers())
    def draw(_: int) -> None: ...

    draw()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if session.testsfailed or session.config.option.collectonly:
        return None
    temporary(session.config).getbasetemp()
    Forks(session, session.config.pluginmanager.getplugin(SIGN)).run()
    return True
