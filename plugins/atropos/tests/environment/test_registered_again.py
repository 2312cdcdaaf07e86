"""Kills that a run outlives, before a trainer whose steps the test takes itself."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

from afterwit_atropos.demo import MODEL, SETTINGS
from afterwit_atropos.server import AtroposServer, NotRegistered, Registration
from plugins.atropos.tests.environment.conftest import Start
from tests.servers.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.atropos]
GROUP = 2
LAST_STEP = 10_000
"""No environment comes so far by playing."""
LONGEST_S = 1200.0
AGAIN = "it registers again"


class Run:
    """Environments of one run-api; its trainer takes batches and learns nothing."""

    def __init__(self, server: Server, started: Start, folder: Path) -> None:
        self.server, self._started, self._folder = server, started, folder
        self._trainer = AtroposServer(url=server.url, timeout_s=60.0)
        self.playing: list[subprocess.Popen[bytes]] = []
        self.register(0)

    def register(self, step: int) -> None:
        """As a trainer at this step. One who comes after groups of before it has the server forget them."""
        mine = Registration(
            batch_size=GROUP, max_token_len=1024, starting_step=step, checkpoint_dir="", num_steps=LAST_STEP
        )
        self._trainer.register(mine)
        try:
            self._trainer.batch()
        except NotRegistered:
            self._trainer.reset()
            self._trainer.register(mine)
            self._trainer.batch()

    def play(self, name: str) -> subprocess.Popen[bytes]:
        """A new environment, started."""
        fields = {
            "task_set": "tools_world",
            "engine": "embedded",
            "follow_weights": False,
            "afterwit_config": SETTINGS,
            "rollout_server_url": self.server.url,
            "group_size": GROUP,
            "max_batches_offpolicy": 1,
            "max_agent_turns": 2,
            "max_token_length": 32,
            "total_steps": LAST_STEP,
            "steps_per_eval": 0,
            "use_wandb": False,
        }
        flags = [part for field, value in fields.items() for part in (f"--env.{field}", value)]
        self.playing.append(self._started(name, "atropos", "serve", "--openai.model_name", MODEL, *flags))
        return self.playing[-1]

    def heard_of(self, *numbers: int) -> None:
        """Take batches until each of these environments has sent a group."""
        missing = set(numbers)

        def arrived() -> bool:
            missing.difference_update(group["env_id"] for group in self._trainer.batch() or ())
            return not missing

        self.until(arrived)

    def until(self, happened: Callable[[], bool]) -> None:
        until = time.monotonic() + LONGEST_S
        while not happened():
            assert time.monotonic() < until, "it never happened"
            assert all(each.poll() in (None, -signal.SIGKILL) for each in self.playing), "one ended"
            time.sleep(0.1)

    def says(self, name: str, words: str) -> Callable[[], bool]:
        return lambda: words in (self._folder / f"{name}.log").read_text()


@pytest.fixture
def run(run_api: Server, started: Start, tmp_path: Path) -> Run:
    return Run(run_api, started, tmp_path)


def test_an_environment_that_was_killed_and_started_again_outlives_the_server_too(run: Run) -> None:
    first = run.play("first")
    run.heard_of(0)
    first.kill()
    first.wait()
    second = run.play("second")
    run.heard_of(1)
    run.server.kill()
    run.until(run.says("second", "waiting for"))
    run.server.start()
    run.register(1)
    run.until(run.says("second", AGAIN))
    run.heard_of(0)
    run.server.kill()
    run.server.start()
    run.register(LAST_STEP + 1)
    assert second.wait(LONGEST_S) == 0


def test_two_environments_have_numbers_of_their_own_whoever_is_the_first_to_register_again(run: Run) -> None:
    first = run.play("first")
    run.heard_of(0)
    run.play("second")
    run.heard_of(0, 1)
    run.server.kill()
    run.until(run.says("first", "waiting for"))
    first.send_signal(signal.SIGSTOP)
    run.server.start()
    run.register(1)
    run.heard_of(0)
    first.send_signal(signal.SIGCONT)
    run.until(run.says("first", AGAIN))
    run.heard_of(0, 1)
