"""A run goes on when its trainer is killed, its environment, or run-api; each is a process.

Who registers again, and when, is in `test_registered_again`: here one may be killed before it registers.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

from afterwit import build
from afterwit.version import Version
from afterwit_atropos.demo import MODEL, SETTINGS
from plugins.atropos.tests.environment.conftest import Start
from tests.servers.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.atropos]
STEPS = 9
"""The environment ends when this many batches were given out or wait, before the trainer has used all."""
LONGEST_S = 900.0
BATCH = 16.0


def test_a_run_outlives_its_trainer_its_environment_and_its_server(
    run_api: Server, started: Start, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    learns = ("train", MODEL, "--from", "atropos", "--url", run_api.url, "--home", home, "--config", SETTINGS)
    plays = {
        "task_set": "tools_world",
        "engine": "embedded",
        "afterwit_config": SETTINGS,
        "rollout_server_url": run_api.url,
        "agent_temperature": 0.6,
        "max_agent_turns": 8,
        "max_token_length": 96,
        "max_batches_offpolicy": 1,
        "total_steps": STEPS,
        "steps_per_eval": 1000,
        "use_wandb": False,
    }
    flags = [part for name, value in plays.items() for part in (f"--env.{name}", value)]
    trainer = started("trainer", *learns)
    plays_so = ("environment", "atropos", "serve", "--openai.model_name", MODEL, *flags)
    playing = started(*plays_so)

    wait(home, 2, playing)
    trainer.kill()
    trainer.wait()
    started("trainer", *learns)
    wait(home, 3, playing)
    playing.kill()
    playing.wait()
    playing = started(*plays_so)
    wait(home, 4, playing)
    run_api.kill()
    run_api.start()
    assert playing.wait(LONGEST_S) == 0
    wait(home, STEPS, None)

    assert (tmp_path / "trainer.log").read_text().count("registered with") >= 3
    for version in written(home):
        assert version.metrics["samples"] + version.metrics["sequences_left_out"] == BATCH


def wait(home: Path, number: int, playing: subprocess.Popen[bytes] | None) -> None:
    """Until the home has this version."""
    until = time.monotonic() + LONGEST_S
    while build.versions_of(home, MODEL).newest() < number:
        assert time.monotonic() < until, f"there is no version {number}"
        assert playing is None or playing.poll() is None, "the environment ended too early"
        time.sleep(0.2)


def written(home: Path) -> list[Version]:
    found = [version for version in build.versions_of(home, MODEL).all() if version.number]
    assert [version.number for version in found] == list(range(1, len(found) + 1))
    return found
