"""Tests in forks: each one runs once, also when a test ends its process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]

TESTS = """
import os
import signal

import pytest


@pytest.mark.parametrize("number", range(60))
def test_one(number, tmp_path):
    (tmp_path / "here").touch()
    print("said", number)
    if number == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    if number in (21, 59):
        os._exit(0)
    assert number != 30
"""


@pytest.mark.slow
def test_every_test_runs_once_and_one_that_ends_its_process_is_named(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_many.py").write_text(TESTS)
    options = ["-q", "-p", "tests.forks", "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=HOUSE, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert "4 failed, 56 passed" in done.stdout
    assert "test_one[20]: its process ended: SIGKILL" in done.stdout
    assert "test_one[21]: its process ended: exit status 0" in done.stdout
    assert "test_one[59]: its process ended: exit status 0" in done.stdout
    assert "said 30" in done.stdout
