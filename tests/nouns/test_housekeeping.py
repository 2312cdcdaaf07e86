"""Housekeeping: what it ends, and what it reports."""

from __future__ import annotations

from pathlib import Path

from afterwit.chat_format.render import Renderer
from afterwit.housekeeping import Housekeeping
from afterwit.retry import BackOff
from afterwit.store import AsyncStore
from afterwit.store.sqlite import SqliteStore
from afterwit.worker import Signals
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.models import tiny_qwen3

BACK_OFF = BackOff(base_s=1.0, max_s=1.0, random=lambda: 0.0)


async def test_a_step_that_warns_is_not_overwritten_by_the_loop_that_ran_it(tmp_path: Path) -> None:
    model = tiny_qwen3(tmp_path / "model")
    waiting = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    store_judged(waiting, [a_sample(Renderer.load(model))])
    store, signals, said = AsyncStore(waiting), Signals(), list[tuple[bool, str]]()

    async def report(ok: bool, message: str) -> None:
        said.append((ok, message))
        signals.stop.set()

    limits = {"next_state_s": 60.0, "max_age_s": 1e9, "max_bytes": 1}
    housekeeping = Housekeeping(store, tmp_path, report=report, now=lambda: 2000.0, **limits)
    await housekeeping.run(signals, poll_s=60.0, back_off=BACK_OFF)
    await store.close()
    ((ok, message),) = said
    assert not ok
    assert "waiting turns alone exceed store.keep_gb" in message or "too little for new versions" in message
