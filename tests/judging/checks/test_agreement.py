"""The agreement of votes, against its definition and its limits."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.judging.checks import agreement

VOTES = st.lists(st.lists(st.sampled_from([-1, 0, 1]), max_size=5), max_size=12)


def by_definition(units: list[list[int]]) -> float | None:
    """From all ordered pairs of votes on one turn, each turn weighing by its votes."""
    rated = [votes for votes in units if len(votes) > 1]
    if not rated:
        return None
    alike = sum(sum(a == b for a, b in permutations(votes, 2)) / (len(votes) - 1) for votes in rated)
    return alike / sum(map(len, rated))


@given(VOTES)
def test_it_is_the_share_of_pairs_that_agree(units):
    found, expected = agreement(units).share, by_definition(units)
    assert found is None if expected is None else found == pytest.approx(expected)


def test_votes_that_never_differ_on_a_turn_agree_wholly():
    found = agreement([[1, 1, 1], [-1, -1], [0, 0, 0], [1]])
    assert (found.share, found.wrong, found.turns) == (1.0, 0.0, 3)


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
