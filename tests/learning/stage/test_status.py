"""Reports of the learn stage: what the next update waits for, and whether learning lags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from afterwit.learning.passes import Phase
from afterwit.learning.schedule import NOTHING, next_update
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import Reason
from afterwit.verdict import JudgedTurn
from tests.fakes.judged_samples import store_judged
from tests.learning.stage.learning import Place, fill, states, status

PUBLISHED = LearnerSettings(batch=16, min_batch=4)


@pytest.mark.parametrize(
    ("ready", "waited_s", "condition"),
    [
        (3, 1080, "3 of 16 turns wait: the next update starts at 16, or in 12 minutes if 4 wait then"),
        (5, 1080, "5 of 16 turns wait: the next update starts at 16, or in 12 minutes"),
        (5, 1799, "5 of 16 turns wait: the next update starts at 16, or in 1 minute"),
        (3, 1800, "3 of 16 turns wait: the next update starts at 4"),
        (17, 0, "17 turns wait: the next update starts at 16, or in 30 minutes"),
        (0, 0, "no judged turn waits: the next update starts at 16, or at 4 after 30 minutes"),
    ],
)
def test_the_status_says_how_many_turns_wait_and_when_the_next_update_starts(
    ready: int, waited_s: float, condition: str
) -> None:
    choice = replace(NOTHING, ready=ready, oldest_s=float(waited_s))
    assert next_update(choice, PUBLISHED) == condition


def test_turns_held_back_for_their_session_are_counted_apart() -> None:
    message = next_update(replace(NOTHING, ready=1, held=2), PUBLISHED)
    assert message.startswith("1 of 16 turns wait; 2 turns for more of the same session: ")


def test_turns_of_a_failed_update_are_no_lost_turns() -> None:
    assert next_update(NOTHING, PUBLISHED, later=6).startswith(
        "no other judged turn waits; 6 turns of a failed update wait for another try: the next update"
    )


def test_the_loop_stores_what_it_waits_for_and_logs_each_turn_once(
    place: Place, samples: Callable[..., list[JudgedTurn]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    seen: list[str] = []

    def rest(seconds: float) -> None:
        seen.append(status(store).message)
        place.clock.now += 120.0
        if len(seen) == 2:
            store_judged(store, samples(0), now=place.clock.now)

    with place.store() as store:
        place.but(max_wait_s=600.0).learn(store).run(lambda: len(seen) == 4, rest=rest)
    condition = "1 of 4 turns wait: the next update starts at 4, or in {} minutes if 2 wait then"
    assert seen == [
        *["version 0; no judged turn waits: the next update starts at 4, or at 2 after 10 minutes"] * 2,
        *[f"version 0; {condition.format(minutes)}" for minutes in (10, 8)],
    ]
    assert caplog.text.count("1 of 4 turns wait") == 1


def test_the_status_names_the_update_that_is_under_way(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(*range(4)))
    seen = list[str]()
    with place.store() as store:

        def watch(phase: Phase) -> None:
            if phase is Phase.WRITTEN:
                seen.append(status(store).message)

        place.learn(store, watch=watch).run(lambda: False, follow=False)
    assert seen == ["trains on 4 turns"]


def test_a_learner_that_cannot_keep_up_says_by_how_much_and_learns_the_newest(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    place = place.but(batch=2, batches_per_update=1, max_staleness=1)
    fill(place, samples(*range(9)))
    place.clock.now = 2000.0 + 300
    with place.store() as store:
        learn = place.learn(store)
        assert learn.step()
        assert not status(store).ok
        assert status(store).message == (
            "wrote version 1 from 2 turns; learning lags: 7 turns still wait, the oldest for 5 minutes;"
            " not all can train before they are too old, so the newest go first;"
            " 0 became too old since the learner started"
        )
        assert learn.step()
        assert not learn.step()
    found = states(place)
    assert [turn for turn, state in found.items() if state is not Reason.STALE] == [
        f"turn000{number}" for number in (5, 6, 7, 8)
    ]


def test_a_lag_is_over_when_nothing_waits_any_more(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    place = place.but(batch=2, batches_per_update=1, max_staleness=1)
    fill(place, samples(*range(9)))
    with place.store() as store:
        place.learn(store).run(lambda: False, follow=False)
        assert status(store).ok
        assert status(store).message == "version 2; no judged turn is left"
