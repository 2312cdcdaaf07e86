"""Complaints a session over time."""

import pytest

from afterwit.progress import Interval, PersonRequest, Trend, by, progress


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


def test_more_complaints_are_called_so_and_a_few_sessions_prove_nothing():
    assert progress([request(n, complaint=n >= 30) for n in range(60)]).trend is Trend.MORE
    assert progress([request(n, complaint=n < 2) for n in range(12)]).trend is Trend.UNCLEAR
    assert progress([request(n) for n in range(60)]).trend is Trend.UNCLEAR


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
