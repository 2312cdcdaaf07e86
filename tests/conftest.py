"""Shared by all suites: the effort of property tests, and the one real server that runs at a time.

Properties are never searched by the clock: cores may be busy.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
from collections.abc import Generator, Iterator

import pytest
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
