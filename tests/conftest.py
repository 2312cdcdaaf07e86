"""Shared by all suites: the effort of property tests, and the one real server that runs at a time.

Properties are never searched by the clock: cores may be busy.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from tests.servers.server import Servers

EXAMPLES = {"house": 12, "thorough": 500}
"""Examples of a property: in every run, each time others, and with `--hypothesis-profile thorough`
(`make test-thorough`)."""

for name, examples in EXAMPLES.items():
    settings.register_profile(
        name,
        settings.default,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("house")


sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# images often set it; without compiled files each process that a test starts compiles the house again

os.environ |= {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}  # for the tests' own S3 server, and so that no test ever reaches another

os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
# transformers reads a model's weights in four threads: starting them is a third of the work with a tiny model


class SignOfLife:
    """While processes import and collect, or a test is long: prints for how long no test has ended."""

    EVERY_S = 8.0

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter, self._ended = reporter, threading.Event()
        self._last = time.monotonic()
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
                self._reporter.write(f" ({now - self._last:.0f} s without a result) ", flush=True)


LOGGERS = ("afterwit", "httpx", "openai", "uvicorn")
"""The packages whose loggers tests or `afterwit.running.logs` use. Other libraries have hundreds."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay to the end: no garbage collection looks at them, now or later. Nor does pytest
    look at the loggers of other libraries, as it would six times around each test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(10_000)  # by itself it collects after every 700 objects
        loggers = logging.root.manager.loggerDict
        for name in [name for name in loggers if not name.startswith(LOGGERS)]:
            logging.getLogger(name).propagate = True
            del loggers[name]
        if "tests.fakes.models" in sys.modules:
            from tests.fakes.loading import load_once  # imports transformers

            load_once()


class BriefReports:
    """In one of several processes: a report costs it and the first one a millisecond. None goes of a setup or
    teardown that passed, unless `--durations` lists it, and none has keywords, which no one reads there."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        lists_all = item.config.option.durations is not None
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if lists_all or report.when == "call" or not report.passed:
                report.keywords = {}
                item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


class FromTheEnd:
    """In every second process: it collects the last folder first. So each process compiles half of the tests'
    files, and finds the others compiled. The order of the tests stays as it is."""

    def __init__(self, config: pytest.Config) -> None:
        tests, *others = config.args
        self._folders = [str(each) for each in sorted(Path(tests).iterdir()) if each.is_dir()] + others
        config.args[:] = reversed(self._folders)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        def place(item: pytest.Item) -> int:
            return next(n for n, folder in enumerate(self._folders) if item.nodeid.startswith(f"{folder}/"))

        items.sort(key=place)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(BriefReports())
        everything = config.args == config.getini("testpaths")
        if everything and int(config.workerinput["workerid"].removeprefix("gw")) % 2:
            config.pluginmanager.register(FromTheEnd(config))


def pytest_sessionstart(session: pytest.Session) -> None:
    """With several processes; one alone prints what it collects."""
    plugins = session.config.pluginmanager
    if plugins.hasplugin("dsession"):
        plugins.register(SignOfLife(plugins.get_plugin("terminalreporter")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the measurements of tests, such as the seconds until a killed process was back."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid}: {name} {value}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Processes of a cluster have temporary files in one folder, which goes with the test: torch's launcher
    leaves its own when it is killed."""
    if item.get_closest_marker("cluster") is None:
        return (yield)
    with (
        tempfile.TemporaryDirectory(prefix="afterwit-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        return (yield)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Starts engine servers, one at a time. For tests that are marked `engines`."""
    with Servers(tmp_path_factory.mktemp("servers")) as servers:
        yield servers
