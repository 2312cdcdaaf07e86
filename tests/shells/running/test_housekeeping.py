"""Housekeeping: the turns that it ends, and its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterwit.config import load
from afterwit.running.housekeeping import keep_house, room
from afterwit.store import AsyncStore
from afterwit.store.sqlite import SqliteStore
from afterwit.worker import Signals
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.models import tiny_qwen3
from tests.fakes.renderers import renderer_of


async def test_a_step_that_warns_is_not_overwritten_by_the_loop_that_ran_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_qwen3(tmp_path / "model")
    waiting = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    store_judged(waiting, [a_sample(renderer_of(model))])
    store, signals, said = AsyncStore(waiting), Signals(), list[tuple[bool, str]]()

    async def report(ok: bool, message: str) -> None:
        said.append((ok, message))
        signals.stop.set()

    settings = load(home=tmp_path, pairs=["store.keep_gb=1e-9"], environment={})
    await keep_house(settings, tmp_path, store, signals, report, now=lambda: 2000.0)
    await store.close()
    ((ok, message),) = said
    assert not ok
    assert "waiting turns alone exceed store.keep_gb" in message or "too little for new versions" in message
    assert message in caplog.text  # whoever started `serve` reads it there


def test_a_disk_that_is_nearly_full_has_megabytes_and_not_no_gigabyte() -> None:
    words, fault = room(12 * 2**10, 40 * 2**20, 10**9)
    assert words == "the store holds 12 KiB, the disk has 40.0 MiB free"
    assert "too little for new versions" in fault
    assert room(2**21, 2**31, 10**9) == ("the store holds 2.0 MiB, the disk has 2.0 GiB free", "")
