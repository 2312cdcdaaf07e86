"""The loop that every stage shares."""

from __future__ import annotations

import asyncio

import pytest

from afterwit.errors import JudgeUnavailable, StoreError
from afterwit.worker import BackOff, Signals, StageHealth, described, renewing, work

BACK_OFF = BackOff(base_s=1.0, max_s=60.0, random=lambda: 0.0)
POLL = 30.0


class ScriptedStep:
    """A stage whose steps follow a list, and that gets the signal to stop after the last."""

    def __init__(self, signals: Signals, *outcomes: bool | Exception) -> None:
        self.signals = signals
        self.outcomes = list(outcomes)

    async def __call__(self) -> bool:
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.signals.stop.set()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class FakeSignals(Signals):
    """Records rests in place of resting."""

    def __init__(self) -> None:
        super().__init__()
        self.rests: list[tuple[float, bool]] = []

    async def rest(self, seconds: float, *, seen: int | None = None) -> None:
        self.rests.append((seconds, seen is not None))


async def outcome(*outcomes: bool | Exception, lasting: tuple[type[Exception], ...] = ()):
    """Rests taken (seconds, and whether the wake signal could end it) and the reported health."""
    signals, told = FakeSignals(), []

    async def report(ok: bool, message: str) -> None:
        told.append((ok, message))

    await work(
        ScriptedStep(signals, *outcomes),
        signals=signals,
        health=StageHealth("judge", report),
        poll_s=POLL,
        back_off=BACK_OFF,
        lasting=lasting,
    )
    return signals.rests, told


async def test_a_busy_stage_does_not_rest_and_an_idle_one_polls():
    rests, told = await outcome(True, True, False, True, False)
    assert rests == [(POLL, True), (POLL, True)]
    assert told == [(True, "working")]


async def test_a_failing_step_is_reported_and_waits_longer_each_time():
    down = JudgeUnavailable("the judge cannot be reached")
    rests, told = await outcome(down, down, down, True, False)
    assert rests == [(0.5, False), (1.0, False), (2.0, False), (POLL, True)]
    assert told == [(False, "the judge cannot be reached"), (True, "working")]


async def test_after_a_recovery_the_back_off_begins_anew():
    down = JudgeUnavailable("down")
    rests, _ = await outcome(down, down, True, down, True, False)
    assert rests == [(0.5, False), (1.0, False), (0.5, False), (POLL, True)]


async def test_a_lasting_error_is_the_health_until_a_step_did_something():
    down = JudgeUnavailable("down")
    _, told = await outcome(True, down, False, False, True, lasting=(JudgeUnavailable,))
    assert told == [(True, "working"), (False, "down"), (True, "working")]
    _, told = await outcome(True, down, False, False, lasting=(JudgeUnavailable,))
    assert told[-1] == (False, "down")


async def test_another_error_is_over_with_the_next_step_that_passes():
    _, told = await outcome(StoreError("database is locked"), False, lasting=(JudgeUnavailable,))
    assert told == [(False, "database is locked"), (True, "working")]


async def test_a_stage_that_was_told_to_stop_takes_no_step():
    signals = FakeSignals()
    signals.stop.set()

    async def step() -> bool:
        pytest.fail("a step was taken")

    async def report(ok: bool, message: str) -> None:
        pytest.fail("something was told")

    health = StageHealth("judge", report)
    await work(step, signals=signals, health=health, poll_s=1, back_off=BACK_OFF)


async def test_the_same_failure_is_logged_once_in_a_row(caplog):
    down, full = JudgeUnavailable("the judge cannot be reached"), StoreError("disk full")
    await outcome(down, down, full, down, True, down, False)
    assert [record.getMessage() for record in caplog.records] == [
        "judge: the judge cannot be reached",
        "judge: disk full",
        "judge: the judge cannot be reached",
        "judge: the judge cannot be reached",
    ]


async def test_a_store_that_takes_no_status_does_not_end_the_stage():
    signals = FakeSignals()

    async def report(ok: bool, message: str) -> None:
        raise StoreError("disk full")

    step = ScriptedStep(signals, StoreError("disk full"), True, False)
    await work(step, signals=signals, health=StageHealth("judge", report), poll_s=POLL, back_off=BACK_OFF)
    assert not step.outcomes


async def test_a_status_that_could_not_be_stored_is_reported_again():
    told: list[bool] = []

    async def report(ok: bool, message: str) -> None:
        told.append(ok)
        if len(told) == 1:
            raise StoreError("locked")

    health = StageHealth("judge", report)
    for _ in range(3):
        await health.healthy()
    assert told == [True, True]


async def test_a_long_step_reports_its_work_at_its_start_but_hides_no_fault():
    reported: list[tuple[bool, str]] = []

    async def report(ok: bool, message: str) -> None:
        reported.append((ok, message))

    health = StageHealth("practice", report, doing=lambda: "practises a lesson")
    await health.began()
    await health.failed(StoreError("disk full"))
    await health.began()
    assert reported == [(True, "practises a lesson"), (False, "disk full")]


def test_a_foreign_errors_words_are_not_repeated_because_they_may_quote_a_conversation():
    assert described(ValueError("my password is swordfish")) == "ValueError (see the log)"
    assert described(StoreError("database is locked")) == "database is locked"


async def test_a_foreign_error_is_logged_with_its_frames_but_not_its_words(caplog):
    await outcome(ValueError("my password is swordfish"), True)
    assert "ScriptedStep" not in caplog.text
    assert "test_worker.py" in caplog.text
    assert "swordfish" not in caplog.text


async def test_the_wake_signal_ends_a_rest():
    signals = Signals()
    resting = asyncio.create_task(signals.rest(3600, seen=signals.wake.count))
    await asyncio.sleep(0)
    signals.wake.set()
    await asyncio.wait_for(resting, 5)


async def test_a_signal_during_a_step_ends_the_next_rest_of_every_waiter():
    signals = Signals()
    seen = signals.wake.count
    signals.wake.set()
    await asyncio.wait_for(asyncio.gather(*(signals.rest(3600, seen=seen) for _ in range(3))), 5)


async def test_stop_ends_every_rest_and_the_wake_signal_ends_no_back_off():
    signals = Signals()
    resting = asyncio.create_task(signals.rest(3600))
    await asyncio.sleep(0)
    signals.wake.set()
    await asyncio.sleep(0)
    assert not resting.done()
    signals.stop.set()
    await asyncio.wait_for(resting, 5)


async def test_a_rest_is_over_when_its_time_is():
    await asyncio.wait_for(Signals().rest(0.001, seen=0), 5)


async def test_a_lease_is_renewed_while_the_work_runs_and_not_longer():
    slept: list[float] = []
    renewed = asyncio.Event()
    count = 0

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    async def renew() -> None:
        nonlocal count
        count += 1
        if count == 1:
            raise StoreError("locked")
        renewed.set()

    async with renewing(renew, every_s=40, sleep=sleep):
        await asyncio.wait_for(renewed.wait(), 5)
    made = count
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert count == made
    assert set(slept) == {40}
