"""A server's processes end with the process that wanted it, however that one ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import guard

SILENT = """
import os, signal, subprocess, sys, tempfile, time
signal.signal(signal.SIGTERM, signal.SIG_IGN) if "deaf" in sys.argv else None
away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
left, name = tempfile.mkstemp()
print(os.getpid(), away.pid, name, flush=True)
time.sleep(1000)
"""
"""A server that starts a process outside its group and leaves a file, and prints the ids and the file."""


@pytest.fixture(params=["", "deaf"])
def guarded(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    short = "import sys; from tests.servers import guard; guard.GRACE_S = 0.5; guard.main(sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", short, sys.executable, "-c", SILENT, request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(guard.__file__).parents[2],
    )
    yield process
    process.communicate(timeout=60)


def _things(process: subprocess.Popen[str]) -> list[Path]:
    """Both processes, and the file."""
    assert process.stdout is not None
    *pids, name = process.stdout.readline().split()
    return [*(Path("/proc") / pid for pid in pids), Path(name)]


def test_closed_input_ends_what_was_started_and_what_that_started(guarded: subprocess.Popen[str]) -> None:
    things = _things(guarded)
    assert all(thing.exists() for thing in things)
    guarded.communicate(timeout=60)
    assert not any(thing.exists() for thing in things)


def test_k_ends_everything_at_once(guarded: subprocess.Popen[str]) -> None:
    things = _things(guarded)
    guarded.communicate("k", timeout=60)
    assert not any(thing.exists() for thing in things)


def test_the_guard_ends_when_the_command_does() -> None:
    command = [sys.executable, guard.__file__, sys.executable, "-c", "pass"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait(timeout=60) == 0
