"""The terms that train a turn under an objective, and the reason if none does."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.lifecycle import Reason
from afterwit.turn import Kind, Sampled
from afterwit.verdict import Carried, Reads, Source, Verdict, confidence
from tests.fakes.turns import a_turn

ROUTED = Reads(confident_above=0.95)
RL, OPD, BOTH = Carried(rl=True), Carried(opd=True), Carried(rl=True, opd=True)
HINTS = ("Open the file that was named.",)


def learned(turn, reward, *, reads=ROUTED, sure=None):
    return reads.learned(turn, reward=reward, confidence=sure)


def test_a_failure_with_a_hint_learns_by_the_hint_alone():
    assert learned(BOTH, -1.0) == OPD
    assert learned(BOTH, -1.0, sure=1.0) == OPD


def test_a_failure_without_a_hint_learns_by_its_reward():
    assert learned(RL, -1.0) == RL


def test_an_unclear_turn_learns_by_its_hint():
    assert learned(OPD, 0.0) == OPD


@pytest.mark.parametrize("sure", [None, 0.0, 0.949])
def test_a_success_learns_by_its_reward_alone(sure):
    assert learned(BOTH, 1.0, sure=sure) == RL


@pytest.mark.parametrize("sure", [0.95, 1.0])
def test_a_success_that_the_policy_was_confident_of_teaches_nothing(sure):
    assert learned(BOTH, 1.0, sure=sure) == Carried(reason=Reason.ALREADY_CONFIDENT)
    assert learned(RL, 1.0, sure=sure) == Carried(reason=Reason.ALREADY_CONFIDENT)


@pytest.mark.parametrize("reward", [-1.0, 0.0, 1.0])
def test_unrouted_a_turn_learns_by_all_it_carries(reward):
    turn = Carried(rl=reward != 0, opd=True)
    assert learned(turn, reward, reads=Reads(), sure=1.0) == turn


def test_routing_never_adds_a_term_and_routing_twice_changes_nothing():
    for rl, opd, reward, sure in product((False, True), (False, True), (-1.0, 0.0, 1.0), (None, 0.1, 0.99)):
        taken = learned(Carried(rl=rl, opd=opd), reward, sure=sure)
        assert taken.rl <= rl
        assert taken.opd <= opd
        assert not (taken.rl and taken.opd)
        again = learned(taken, reward, sure=sure)
        assert (again.rl, again.opd) == (taken.rl, taken.opd)


@pytest.mark.parametrize("reads", [Reads(rl=False), Reads(opd=False), Reads(rl=False, opd=False)])
@pytest.mark.parametrize("turn", [BOTH, RL, OPD])
def test_a_turn_trains_if_it_carries_a_term_that_the_objective_reads(reads, turn):
    trains = (turn.rl and reads.rl) or (turn.opd and reads.opd)
    assert learned(turn, -1.0, reads=reads).reason is (None if trains else Reason.NO_SIGNAL)


def test_a_judged_turn_keeps_its_terms_and_says_why_the_objective_reads_none():
    verdict = Verdict(reward=1, source=Source.VOTES, hints=HINTS)
    assert Reads().of(a_turn("t"), verdict) == BOTH
    assert ROUTED.of(a_turn("t"), verdict) == BOTH
    sure = Sampled(ids=(4,), logprobs=(-0.01,), versions=(0,), forced=(False,))
    ended = Carried(rl=True, opd=True, reason=Reason.ALREADY_CONFIDENT)
    assert ROUTED.of(a_turn("t", sampled=sure), verdict) == ended
    assert Reads().of(a_turn("t", kind=Kind.SIDE), verdict) == Carried(reason=Reason.SIDE_TURN)


@pytest.mark.parametrize(
    ("reads", "needed"),
    [
        (Reads(), True),
        (Reads(rl=False), False),
        (Reads(rl=False, confident_above=0.9), True),
        (Reads(opd=False), True),
    ],
)
def test_a_reward_is_needed_to_learn_from_it_or_to_route_by_it(reads, needed):
    assert reads.reward is needed


def test_confidence_is_the_mean_probability_of_what_was_sampled():
    assert confidence([math.log(0.5), math.log(0.1), 0.0], [False, True, False]) == pytest.approx(0.75)
    assert confidence([0.0, -1.0], [True, True]) is None
    assert confidence([], []) is None


@given(st.lists(st.floats(-1e9, 5, allow_nan=False) | st.just(-math.inf), min_size=1, max_size=9))
def test_confidence_is_a_probability_whatever_an_engine_reports(logprobs):
    assert 0 <= confidence(logprobs, [False] * len(logprobs)) <= 1
