"""Where turns are routed: by which of its terms one learns, and how sure the policy was."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.core.routing import Brought, confidence, routed


def turn(reward, *, rl=True, opd=True, sure=None):
    return Brought(rl=rl, opd=opd, reward=reward, confidence=sure)


def learns_by(*args, **more):
    taken = routed(turn(*args, **more), confident_above=0.95)
    return taken.rl, taken.opd


def test_a_failure_with_a_hint_learns_by_the_hint_alone():
    assert learns_by(-1.0) == (False, True)
    assert learns_by(-1.0, sure=1.0) == (False, True)


def test_a_failure_without_a_hint_learns_by_its_reward():
    assert learns_by(-1.0, opd=False) == (True, False)


def test_an_unclear_turn_learns_by_its_hint():
    assert learns_by(0.0, rl=False) == (False, True)


@pytest.mark.parametrize("sure", [None, 0.0, 0.949])
def test_a_success_learns_by_its_reward_alone(sure):
    assert learns_by(1.0, sure=sure) == (True, False)


@pytest.mark.parametrize("sure", [0.95, 1.0])
def test_a_success_that_the_policy_was_sure_of_teaches_nothing(sure):
    assert learns_by(1.0, sure=sure) == (False, False)
    assert learns_by(1.0, opd=False, sure=sure) == (False, False)


def test_routing_never_adds_a_term_and_routing_twice_changes_nothing():
    for rl, opd, reward, sure in product((False, True), (False, True), (-1.0, 0.0, 1.0), (None, 0.1, 0.99)):
        brought = Brought(rl=rl, opd=opd, reward=reward, confidence=sure)
        taken = routed(brought, confident_above=0.95)
        assert taken.rl <= rl
        assert taken.opd <= opd
        assert not (taken.rl and taken.opd)
        assert routed(taken, confident_above=0.95) == taken


def test_sureness_is_the_mean_probability_of_what_was_sampled():
    assert confidence([math.log(0.5), math.log(0.1), 0.0], [False, True, False]) == pytest.approx(0.75)
    assert confidence([0.0, -1.0], [True, True]) is None
    assert confidence([], []) is None


@given(st.lists(st.floats(-1e9, 5, allow_nan=False) | st.just(-math.inf), min_size=1, max_size=9))
def test_sureness_is_a_probability_whatever_an_engine_reports(logprobs):
    assert 0 <= confidence(logprobs, [False] * len(logprobs)) <= 1
