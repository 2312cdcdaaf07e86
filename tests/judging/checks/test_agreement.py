"""Krippendorff's alpha, against its definition and its limits."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.judging.checks import agreement

VOTES = st.lists(st.lists(st.sampled_from([-1, 0, 1]), max_size=5), max_size=12)


def by_definition(units: list[list[int]]) -> float | None:
    """1 - observed / expected disagreement, from all ordered pairs."""
    rated = [votes for votes in units if len(votes) > 1]
    pool = [value for votes in rated for value in votes]
    observed = sum(sum(a != b for a, b in permutations(votes, 2)) / (len(votes) - 1) for votes in rated)
    pairs = [a != b for a, b in permutations(pool, 2)]
    if not any(pairs):
        return None
    return 1 - (observed / len(pool)) / (sum(pairs) / len(pairs))


@given(VOTES)
def test_it_is_the_published_coefficient(units):
    found, expected = agreement(units).alpha, by_definition(units)
    assert found is None if expected is None else found == pytest.approx(expected)


def test_votes_that_never_differ_on_a_turn_agree_wholly():
    assert agreement([[1, 1, 1], [-1, -1], [0, 0, 0]]).alpha == 1.0
    assert agreement([[1, 1, 1], [-1, -1]]).share == 1.0


def test_a_judge_that_always_says_the_same_shows_no_agreement_beyond_chance():
    found = agreement([[1, 1, 1]] * 9)
    assert (found.share, found.alpha, found.turns) == (1.0, None, 9)


def test_votes_by_chance_have_an_alpha_near_zero():
    draws = Random(0)
    found = agreement([draws.choices((-1, 1), k=3) for _ in range(2000)])
    assert found.alpha == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize("bad", [0.5, 0.1])
@pytest.mark.parametrize("wrong", [0.0, 0.1, 0.25, 0.4])
def test_it_tells_how_many_answers_are_wrong_however_many_turns_are_bad(wrong, bad):
    draws = Random(1)
    units = []
    for _ in range(4000):
        truth = -1 if draws.random() < bad else 1
        units.append([-truth if draws.random() < wrong else truth for _ in range(3)])
    assert agreement(units).wrong == pytest.approx(wrong, abs=0.04)


def test_single_votes_and_none_say_nothing():
    assert agreement([[1], [], [-1]]).turns == 0
    assert agreement([]).share is None
    assert agreement([]).wrong is None
