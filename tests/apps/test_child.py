"""The learner's process is started again, whatever became of it and whoever does not want to hear of it."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from pathlib import Path

import pytest

from afterwit.apps import child
from afterwit.apps.config import load
from afterwit.core.errors import StoreError


async def test_a_store_that_takes_no_status_does_not_end_the_restarts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []

    async def report(ok: bool, words: str) -> None:
        said.append(words)
        raise StoreError("the disk is full")

    async def kill() -> None:
        while not (learners := multiprocessing.active_children()):
            await asyncio.sleep(0.01)
        learners[0].kill()

    settings = load(home=tmp_path, environment={})
    kept = asyncio.create_task(child.keep_alive(settings, tmp_path, pause_s=0.01, stop_s=1.0, report=report))
    async with asyncio.timeout(50):
        for times in (1, 2):
            await kill()
            while len(said) < times:
                await asyncio.sleep(0.01)
    kept.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await kept
    assert all("the learner was killed" in words for words in said)
    assert "its status cannot be stored: the disk is full" in caplog.text
