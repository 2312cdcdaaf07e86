"""Intervals against published values and references of 50 digits."""

import math
from random import Random

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.progress import Interval, difference_interval, mean_interval, wilson_interval


def wilson_by_roots(count: int, of: int) -> tuple[float, float]:
    """The shares p at which (count / of - p)^2 = z^2 p (1 - p) / of, which is the interval's definition."""
    with mpmath.workdps(50):
        z2 = mpmath.mpf("3.8414588206941259583")  # the square of the quantile
        share = mpmath.mpf(count) / of
        roots = mpmath.polyroots([1 + z2 / of, -(2 * share + z2 / of), share**2], maxsteps=200, extraprec=200)
        low, high = sorted(mpmath.re(root) for root in roots)
        return float(low), float(high)


counts = st.integers(1, 400).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of)))


@given(counts)
def test_wilsons_ends_are_the_roots_of_its_equation(pair):
    found, (low, high) = wilson_interval(*pair), wilson_by_roots(*pair)
    assert found.low == pytest.approx(low, abs=1e-12)
    assert found.high == pytest.approx(high, abs=1e-12)


@pytest.mark.parametrize(
    ("late", "early", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 10), -0.2775, 0.2775),
    ],
)
def test_differences_are_those_that_newcombe_published(late, early, low, high):
    found = difference_interval(early, late)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


def test_of_nothing_nothing_is_known():
    assert wilson_interval(0, 0) == Interval(low=0.0, high=1.0)
    assert difference_interval((0, 0), (3, 4)) == Interval(low=-1.0, high=1.0)


@pytest.mark.parametrize(("count", "of"), [(3, 2), (-1, 2)])
def test_counts_that_cannot_be_are_refused(count, of):
    with pytest.raises(ValueError, match="of"):
        wilson_interval(count, of)
    with pytest.raises(ValueError, match="mean of no counts"):
        mean_interval([])
    with pytest.raises(ValueError, match="from 2 to 1"):
        Interval(low=2, high=1)


def test_the_interval_of_many_counts_is_the_normal_one_of_their_mean():
    random = Random(1)
    values = [random.choice((0, 0, 0, 1, 2)) for _ in range(2000)]
    mean = math.fsum(values) / len(values)
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values)) / len(values)
    found = mean_interval(values)
    assert found.low == pytest.approx(mean - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(mean + 1.96 * error, abs=0.1 * error)


@pytest.mark.parametrize("sessions", [10, 30])
@pytest.mark.parametrize("mean", [0.05, 0.2, 0.6])
def test_where_few_complain_the_interval_of_their_mean_still_holds_it(sessions: int, mean: float):
    random, held, draws = Random(2), 0, 400
    for _ in range(draws):
        counts = [sum(random.random() < mean / 3 for _ in range(3)) for _ in range(sessions)]
        found = mean_interval(counts)
        held += found.low <= mean <= found.high
    assert held >= 0.9 * draws


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_the_interval_of_a_mean_holds_the_mean_and_is_never_a_point(values):
    found = mean_interval(values)
    assert 0 <= found.low <= math.fsum(values) / len(values) < found.high
