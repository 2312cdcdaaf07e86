"""Complaints a session over time."""

import math
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from afterwit.progress import Interval, PersonRequest, Trend, by, progress
from tests.products import some

LOOKS = (20, 30, 45, 68, 102, 152, 228)
"""The sizes that are tested, up to 300."""


def request(session: int, *, complaint: bool = False, at: float | None = None, **more: str) -> PersonRequest:
    words = {"source": "laptop", "kind": "text", **more}
    return PersonRequest(
        session=f"s{session}", complaint=complaint, at=session if at is None else at, **words
    )


def test_sessions_are_cut_into_periods_by_when_they_began():
    requests = [request(number, complaint=number < 20) for number in range(60)]
    late = request(0, complaint=True, at=1000.0)
    found = progress([*reversed(requests), late])
    assert [period.sessions for period in found.periods] == [10] * 6
    assert [period.complaining for period in found.periods] == [10, 10, 0, 0, 0, 0]
    first = found.periods[0]
    assert (first.requests, first.complaints, first.per_session, first.share) == (11, 11, 1.1, 1.0)
    assert (first.since, first.until) == (0.0, 1000.0)
    assert found.trend is Trend.LESS


def test_a_period_begins_with_its_first_session_and_not_when_that_was_judged():
    requests = [replace(request(number), began=number - 0.5) for number in range(1, 21)]
    assert [period.since for period in progress(requests).periods] == [0.5, 5.5, 10.5, 15.5]


def test_more_complaints_are_called_so_and_a_few_sessions_prove_nothing():
    assert progress([request(n, complaint=n >= 30) for n in range(60)]).trend is Trend.MORE
    assert progress([request(n, complaint=n < 2) for n in range(12)]).trend is Trend.UNCLEAR
    assert progress([request(n) for n in range(60)]).trend is Trend.UNCLEAR


@pytest.mark.parametrize("share", some(2, [0.1, 0.3, 0.5]))
def test_in_a_home_without_change_less_is_seldom_claimed_however_often_one_looks(share: float):
    random, claimed, homes = Random(0), 0, 150
    for _ in range(homes):
        requests = [request(n, complaint=random.random() < share) for n in range(LOOKS[-1])]
        claimed += any(progress(requests[:size], periods=1).trend is Trend.LESS for size in LOOKS)
    assert claimed <= 0.05 * homes + 2 * math.sqrt(0.05 * 0.95 * homes)


def test_between_two_tests_the_answer_stays_so_that_a_daily_look_sees_no_more_than_the_tests():
    random = Random(1)
    requests = [request(n, complaint=random.random() < 0.7 - n / 300) for n in range(152)]
    for size, following in pairwise(LOOKS):
        answers = {
            (found.trend, found.change)
            for until in range(size, min(following, len(requests) + 1), 5)
            for found in [progress(requests[:until], periods=1)]
        }
        assert len(answers) <= 1


def test_a_slow_decline_is_found_by_the_trend_over_all_and_one_of_long_ago_by_the_first_and_the_last():
    slow = [request(n, complaint=n % 10 < 7 - n // 60) for n in range(228)]
    found = progress(slow)
    assert found.trend is Trend.LESS
    assert found.change.high > 0
    assert found.sentence.endswith("over all 228 sessions complaints become rarer, which decides.")
    soon = [request(n, complaint=n % 10 < (7 if n < 30 else 2)) for n in range(1200)]
    assert progress(soon).trend is Trend.LESS
    assert progress(soon).sentence.endswith(" points).")


def test_of_sessions_that_ran_together_those_that_came_first_count_as_the_first():
    """All sixteen of a round come at once, and short answers, which get no complaints, end first."""
    requests = []
    for turn, complaints in enumerate((16, 15, 8, 8)):
        for n in range(16):
            bad = n < complaints
            began, ended = 1000 * turn + n, 1000 * turn + 100 * bad + n
            requests.append(
                PersonRequest(
                    session=f"{turn}-{n}", source="a", kind="text", complaint=bad, at=ended, began=began
                )
            )
    found = progress(requests)
    assert [period.complaining for period in progress(requests, periods=4).periods] == [16, 15, 8, 8]
    assert found.trend is Trend.LESS
    assert found.first == (15, 15)


def test_the_interval_of_a_clear_change_does_not_seem_to_reach_zero():
    found = progress([request(n, complaint=n % 10 < 7 - n // 50) for n in range(228)])
    assert found.over_all is None
    assert "(change -54 to -0.1 points)" in found.sentence


@pytest.mark.parametrize("sessions", [0, 1, 9])
def test_too_few_sessions_have_no_trend(sessions):
    found = progress([request(n, complaint=True) for n in range(sessions)])
    assert len(found.periods) == (sessions > 0)
    assert found.change == Interval(low=-1.0, high=1.0)
    assert found.trend is Trend.UNCLEAR


def test_periods_are_fewer_rather_than_too_small():
    assert [period.sessions for period in progress([request(n) for n in range(17)]).periods] == [5, 6, 6]


def test_each_source_has_its_own_progress_the_busiest_first():
    requests = [request(n, source="phone" if n % 3 else "laptop", complaint=n % 3 == 0) for n in range(60)]
    found = by(requests, lambda each: each.source)
    assert list(found) == ["phone", "laptop"]
    assert [period.complaining for period in found["phone"].periods] == [0, 0]
    assert [period.complaining for period in found["laptop"].periods] == [10, 10]
