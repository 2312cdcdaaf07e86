"""Atropos's own server, and commands of Afterwit, as processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers.server import Launch, Server

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def run_api(tmp_path: Path) -> Iterator[Server]:
    found = Server(Launch(server="atropos", model=tmp_path), tmp_path / "run-api.log")
    found.start()
    yield found
    found.end()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Start]:
    """Starts commands of Afterwit, each with a log; ends those that still run."""
    with ExitStack() as stack:

        def start(name: str, *arguments: object) -> subprocess.Popen[bytes]:
            log = stack.enter_context((tmp_path / f"{name}.log").open("ab"))
            command = [sys.executable, "-m", "afterwit", *map(str, arguments)]
            process = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start
