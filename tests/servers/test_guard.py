"""A server's processes end with the process that wanted it, however that one ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import guard

SILENT = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN) if "deaf" in sys.argv else None
away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(os.getpid(), away.pid, flush=True)
time.sleep(1000)
"""
"""A server that starts a process outside its group, and prints both ids."""


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


def _pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(pid) for pid in process.stdout.readline().split()]


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_closed_input_ends_what_was_started_and_what_that_started(guarded: subprocess.Popen[str]) -> None:
    pids = _pids(guarded)
    assert all(map(_exists, pids))
    guarded.communicate(timeout=60)
    assert not any(map(_exists, pids))


def test_k_ends_everything_at_once(guarded: subprocess.Popen[str]) -> None:
    pids = _pids(guarded)
    guarded.communicate("k", timeout=60)
    assert not any(map(_exists, pids))


def test_the_guard_ends_when_the_command_does() -> None:
    command = [sys.executable, guard.__file__, sys.executable, "-c", "pass"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait(timeout=60) == 0
