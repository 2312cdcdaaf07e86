"""The service and the container file, as far as a machine without either can test them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from afterwit.config import ServeSettings
from afterwit.running.serve import LEARNER_STOP_S

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy" / "afterwit.service").read_text(encoding="utf-8")
CONTAINER = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_no_fault_in_the_service(tmp_path: Path) -> None:
    """The program is another one here: systemd looks whether it is there."""
    unit = tmp_path / "afterwit.service"
    unit.write_text(UNIT.replace("%h/.local/bin/afterwit", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", "--user", str(unit)]
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillModes=mixed"))
    wrong = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "KillModes" in wrong.stderr


def test_a_stop_leaves_the_time_that_a_clean_end_may_take() -> None:
    (seconds,) = re.findall(r"TimeoutStopSec=(\d+)", UNIT)
    assert int(seconds) > ServeSettings().drain_s + LEARNER_STOP_S


def test_the_container_copies_what_is_there_and_installs_the_torch_of_the_makefile() -> None:
    copied = [word for line in re.findall(r"(?m)^COPY (.+) \S+$", CONTAINER) for word in line.split()]
    assert copied
    assert all((ROOT / path).exists() for path in copied)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"ARG TORCH=(\S+)", CONTAINER) == re.findall(r"(?m)^TORCH +\?= (\S+)", makefile)
