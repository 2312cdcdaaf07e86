"""Killed processes of a learner: it is soon back, and no turn is lost or trains twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from afterwit.build import versions_of
from afterwit.running import learner_process
from tests.shells.running.several_learners import command_of, fill, ranks_beneath, settings_of, trained

pytestmark = pytest.mark.cluster
DEADLINE_S = 600.0
"""For one learner to come back: minutes on a machine that does much else."""


class Storm:
    """A learner of two processes under `serve`'s own watch; it always has something to learn."""

    def __init__(self, model: Path, home: Path, pause_s: float | None) -> None:
        """`pause_s`: before it starts again the first time; None: as set."""
        self.settings = settings_of(model, home, processes=2, poll_s=0.1, max_staleness=10_000)
        self.said: list[str] = []
        self._model, self._home, self._random = model, home, Random(11)
        self._pause_s = self.settings.serve.learner_restart_s if pause_s is None else pause_s
        self._filled = 0

    @asynccontextmanager
    async def learning(self) -> AsyncIterator[None]:
        """The learner is kept alive, and fed; at the end it may learn what is left."""
        async with running(self._kept_alive()):
            async with running(self._fed()):
                yield
            await until(lambda: len(trained(self._home, self._model)) >= self._filled)

    async def back(self, began: float) -> list[float]:
        """Until both processes work and another version is made: both times, in seconds since `began`."""
        await until(lambda: len(ranks_beneath(os.getpid())) == 2)
        made, there = self._newest(), time.monotonic() - began
        await until(lambda: self._newest() > made)
        return [there, time.monotonic() - began]

    async def kill(self) -> tuple[float, float]:
        """One of the processes, and wait until all have ended: when it was, and after how many seconds."""
        await until(lambda: len(ranks_beneath(os.getpid())) == 2)
        await asyncio.sleep(self._random.uniform(0.0, 1.0))
        ranks, killed = ranks_beneath(os.getpid()), time.monotonic()
        os.kill(self._random.choice(ranks), signal.SIGKILL)
        await until(lambda: not any(command_of(rank) for rank in ranks))
        return killed, time.monotonic() - killed

    def check(self) -> None:
        """Every turn trained, and trained once."""
        assert trained(self._home, self._model) == sorted(
            f"turn{number:04d}" for number in range(self._filled)
        )

    async def _kept_alive(self) -> None:
        async def report(ok: bool, words: str) -> None:
            self.said.append(words)

        await learner_process.keep_alive(
            self.settings, self._home, pause_s=self._pause_s, stop_s=20.0, report=report
        )

    async def _fed(self) -> None:
        """Two batches wait."""
        while True:
            if len(trained(self._home, self._model)) + 8 > self._filled:
                numbers = range(self._filled, self._filled + 12)
                self._filled = numbers.stop  # a thread goes on when its task is cancelled
                await asyncio.to_thread(fill, self.settings, self._model, self._home, *numbers)
            await asyncio.sleep(0.2)

    def _newest(self) -> int:
        return versions_of(self._home, self._model).newest()


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Beside what follows; not longer."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 - other processes make it so
            await asyncio.sleep(0.1)


async def storm(model: Path, home: Path, kills: int, pause_s: float | None = None) -> list[list[float]]:
    """After each kill the seconds until all processes had ended, both were there again, and another version
    was made.

    Every third learner is killed again while it loads; then they count from there.
    """
    storm, seconds = Storm(model, home, pause_s), []
    async with storm.learning():
        for number in range(kills):
            await storm.back(time.monotonic())
            killed, ended = await storm.kill()
            if number % 3 == 2:
                killed, ended = await storm.kill()
            seconds.append([ended, *await storm.back(killed)])
    storm.check()
    assert any("lost a process" in words for words in storm.said)
    assert ranks_beneath(os.getpid()) == []
    return seconds


@pytest.mark.timeout(1200)
async def test_a_storm_of_kills_loses_no_turn_and_trains_none_twice(model: Path, tmp_path: Path) -> None:
    await storm(model, tmp_path, 3, pause_s=0.1)


@pytest.mark.slow
@pytest.mark.timeout(7200)
async def test_thirty_kills_lose_no_turn_and_train_none_twice(
    model: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seconds = await storm(model, tmp_path, 30)
    record_property("seconds", " ".join("/".join(f"{part:.1f}" for part in each) for each in seconds))


def test_the_processes_of_a_launcher_that_is_killed_end_too(model: Path, tmp_path: Path) -> None:
    settings = settings_of(model, tmp_path, processes=2)
    process = learner_process._start(settings, tmp_path)
    while len(ranks := ranks_beneath(os.getpid())) < 2:
        time.sleep(0.1)
    process.kill()
    process.join()
    deadline = time.monotonic() + 300
    while any(command_of(rank) for rank in ranks):
        assert time.monotonic() < deadline, "they outlive their launcher"
        time.sleep(0.1)
