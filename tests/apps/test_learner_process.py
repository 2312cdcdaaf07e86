"""The learner's process is started again, whatever became of it and whoever does not want to hear of it."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from pathlib import Path

import pytest

from afterwit.apps import learner_process
from afterwit.apps.config import load
from afterwit.core.errors import StoreError


async def test_a_store_that_takes_no_status_does_not_end_the_restarts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []
    twice = asyncio.Event()

    async def report(ok: bool, words: str) -> None:
        said.append(words)
        if len(said) == 2:
            twice.set()
        raise StoreError("the disk is full")

    settings = load(home=tmp_path, environment={})
    kept = asyncio.create_task(
        learner_process.keep_alive(settings, tmp_path, pause_s=0.01, stop_s=1.0, report=report)
    )
    killer = asyncio.create_task(kill_learners())
    async with asyncio.timeout(50):
        await twice.wait()
    for task in (kept, killer):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert all("the learner was killed" in words for words in said)
    assert "its status cannot be stored: the disk is full" in caplog.text


async def kill_learners() -> None:
    """Kill -9 whatever learner is there, again and again."""
    for _ in range(1000):
        for learner in multiprocessing.active_children():
            learner.kill()
        await asyncio.sleep(0.02)
