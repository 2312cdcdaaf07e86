"""E-values against exact sums in rational numbers, and against what they promise."""

from fractions import Fraction
from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.promotion.suite import SHARES, PromotionSettings, e_value, ongoing_evidence

BOUND = Fraction(1, 10)


def exact(lost: int, of: int, bound: Fraction = BOUND) -> Fraction:
    shares = [bound + (1 - bound) * Fraction(2 * part + 1, 2 * SHARES) for part in range(SHARES)]
    ratios = [(p / bound) ** lost * ((1 - p) / (1 - bound)) ** (of - lost) for p in shares]
    return sum(ratios, Fraction()) / SHARES


@given(st.integers(0, 12).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_an_e_value_is_the_exact_mean_of_likelihood_ratios(counts):
    assert e_value(*counts, bound=0.1) == pytest.approx(float(exact(*counts)), rel=1e-12)


@pytest.mark.parametrize(
    ("lost", "of", "expected"), [(2, 3, 10.3), (3, 3, 277.6), (4, 8, 26.9), (5, 8, 302.4), (0, 0, 1.0)]
)
def test_known_counts_have_known_evidence(lost, of, expected):
    assert e_value(lost, of, bound=0.1) == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("of", range(1, 9))
def test_the_mean_at_the_bound_is_one_so_a_false_hold_is_rare(of):
    chances = [comb(of, lost) * BOUND**lost * (1 - BOUND) ** (of - lost) for lost in range(of + 1)]
    assert sum(chance * exact(lost, of) for lost, chance in enumerate(chances)) == 1


def test_more_losses_are_more_evidence():
    values = [e_value(lost, 8, bound=0.1) for lost in range(9)]
    assert values == sorted(values)


def detected(bad: list[bool]) -> list[float]:
    return list(ongoing_evidence(bad, bound=0.15))


def test_a_detector_forgets_good_times():
    bad = [True] * 6
    assert detected([False] * 200 + bad)[-1] >= detected(bad)[-1] > 20


def test_one_outcome_is_one_bet():
    assert detected([True]) == [pytest.approx(e_value(1, 1, bound=0.15))]
    assert detected([]) == []


@pytest.mark.parametrize(
    ("share", "least", "most"),
    [
        pytest.param(0.05, 2000, 3000, marks=pytest.mark.slow),
        *((0.12, 700, 2000), (0.3, 30, 65), (0.5, 10, 17)),
    ],
)
def test_the_watchs_alarm_comes_late_below_its_bound_and_soon_above(share, least, most):
    waits = [_episodes_to_an_alarm(share, Random(seed)) for seed in range(24)]
    assert least <= sum(waits) / len(waits) <= most


def _episodes_to_an_alarm(share: float, rng: Random, most: int = 3000) -> int:
    watch = PromotionSettings()
    outcomes = (rng.random() < share for _ in range(most))
    values = ongoing_evidence(outcomes, bound=watch.may_end_badly)
    return next((at for at, value in enumerate(values, start=1) if value >= watch.alarm_at), most)


@pytest.mark.parametrize("counts", [(2, 1), (-1, 3)])
def test_counts_that_cannot_be_are_refused(counts):
    with pytest.raises(ValueError, match="lost of"):
        e_value(*counts, bound=0.1)


@pytest.mark.parametrize("bound", [0.0, 1.0, -0.1])
def test_a_bound_outside_zero_and_one_is_refused(bound):
    with pytest.raises(ValueError, match="between 0 and 1"):
        e_value(0, 1, bound=bound)
