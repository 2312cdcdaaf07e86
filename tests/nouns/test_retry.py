"""Trying again, later each time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.errors import JudgeRefused, JudgeUnavailable
from afterwit.worker import BackOff, retrying

HALF = BackOff(base_s=1.0, max_s=60.0, random=lambda: 0.0)
WHOLE = BackOff(base_s=1.0, max_s=60.0, random=lambda: 1.0 - 2**-53)


class Sleeps:
    """Records how long it was asked to sleep."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Calls:
    """Fails with each of these in turn, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.made = 0

    async def __call__(self) -> str:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "yes"


def test_the_wait_doubles_to_its_limit():
    assert [HALF.after(failures) * 2 for failures in (1, 2, 3, 6, 7, 1000)] == [1, 2, 4, 32, 60, 60]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_the_jitter_lies_between_half_and_the_whole(failures, chance):
    wait = BackOff(base_s=1.0, max_s=60.0, random=lambda: chance).after(failures)
    assert HALF.after(failures) <= wait <= WHOLE.after(failures) <= 60


async def test_a_call_that_fails_is_made_again_after_each_wait():
    calls, sleeps = Calls(JudgeUnavailable("a"), JudgeUnavailable("b")), Sleeps()
    assert await retrying(calls, attempts=3, back_off=HALF, sleep=sleeps) == "yes"
    assert (calls.made, sleeps.seconds) == (3, [0.5, 1.0])


async def test_the_last_failure_is_raised_without_another_wait():
    calls, sleeps = Calls(*(JudgeUnavailable(str(at)) for at in range(5))), Sleeps()
    with pytest.raises(JudgeUnavailable, match="2"):
        await retrying(calls, attempts=3, back_off=HALF, sleep=sleeps)
    assert (calls.made, len(sleeps.seconds)) == (3, 2)


@pytest.mark.parametrize(("asked", "waited"), [(None, 0.5), (0.0, 0.5), (7.0, 7.0), (3600.0, 60.0)])
async def test_a_pause_that_is_asked_for_is_kept_within_the_limit(asked, waited):
    sleeps = Sleeps()
    calls = Calls(JudgeUnavailable("busy", retry_after_s=asked))
    await retrying(calls, attempts=2, back_off=HALF, sleep=sleeps)
    assert sleeps.seconds == [waited]


async def test_a_refusal_is_not_repeated():
    calls = Calls(JudgeRefused("too long"))
    with pytest.raises(JudgeRefused):
        await retrying(calls, attempts=3, back_off=HALF, sleep=Sleeps())
    assert calls.made == 1
