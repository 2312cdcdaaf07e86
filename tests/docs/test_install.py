"""The packages that `make` installs, without installing them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BACKEND = "--torch-backend"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@cache
def planned(*given: str, **environment: str) -> str:
    """The commands that `make demo` would run in a new environment, on a machine without pip settings."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    plain |= {"PIP_CONFIG_FILE": os.devnull, **environment}
    command = ["make", "--dry-run", "demo", f"PYTHON={sys.executable}", "VENV=build/nowhere", *given]
    return subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=True).stdout


def test_the_build_of_torch_is_chosen_by_the_machines_driver() -> None:
    assert f'{BACKEND} "auto"' in planned()


@pytest.mark.parametrize(
    "setting",
    [
        "PIP_INDEX_URL",
        pytest.param("PIP_FIND_LINKS", marks=pytest.mark.slow),
        pytest.param("PIP_EXTRA_INDEX_URL", marks=pytest.mark.slow),
    ],
)
def test_a_machine_with_package_sources_is_not_sent_elsewhere(setting: str) -> None:
    planned_here = planned(**{setting: "/opt/packages"})
    assert 'test -n "";' in planned_here


def test_plain_torch_can_be_asked_for() -> None:
    assert 'test -n "";' in planned("TORCH_BACKEND=")


def test_installation_shows_what_it_does() -> None:
    commands = [line for line in planned().splitlines() if "pip" in line]
    assert commands
    assert not [line for line in commands if "--quiet" in line or " -q" in line]
