"""The terms that a turn carries."""

from itertools import product

import pytest

from afterwit.lifecycle import Reason
from afterwit.objective import ObjectiveSettings
from afterwit.turn import scoring_temperature
from afterwit.verdict import Carried, terms_of


def turn(**facts):
    return terms_of(**({"reward": 1.0, "hints": 2, "tau": 0.6} | facts))


@pytest.mark.parametrize(("hints", "reward"), product((0, 1), (-1.0, 0.0, 1.0)))
def test_a_reward_carries_rl_and_a_hint_carries_opd(hints, reward):
    found = turn(hints=hints, reward=reward)
    assert (found.rl, found.opd) == (reward != 0, hints > 0)
    assert found.reason is (None if reward or hints else Reason.NO_SIGNAL)


@pytest.mark.parametrize(
    ("facts", "no_rl"),
    [
        ({"tau": 0.0}, Reason.GREEDY_WITHOUT_HINT),
        ({"tau": 0.049}, Reason.GREEDY_WITHOUT_HINT),
        ({"tau": 0.05}, None),
        ({"truncated": True}, None),
        ({"truncated": True, "processed": False}, Reason.TRUNCATED_SAMPLING_WITHOUT_HINT),
        ({"processed": False}, None),
        ({"cut_off": True}, Reason.CUT_AT_LENGTH),
        ({"cut_off": True, "evidence": True}, None),
    ],
)
def test_how_a_turn_was_sampled_takes_its_rl_term_away(facts, no_rl):
    assert turn(**facts) == Carried(rl=no_rl is None, opd=True)
    assert turn(**facts, hints=0) == Carried(rl=no_rl is None, reason=no_rl)


def test_penalties_take_both_terms_away():
    assert turn(penalised=True) == Carried(reason=Reason.PENALTIES)


def test_a_greedy_turn_is_scored_at_temperature_1_and_others_at_their_own():
    assert scoring_temperature(0.0) == 1.0
    assert scoring_temperature(0.3) == 0.3


@pytest.mark.parametrize(
    ("settings", "rewarded", "hinted"),
    [
        ({}, True, True),
        ({"w_rl": 0}, False, True),
        ({"w_opd": 0}, True, False),
        ({"objective": "rl"}, True, False),
        ({"objective": "topk_opd"}, False, True),
        ({"objective": "token_opd"}, False, True),
    ],
)
def test_the_objective_decides_what_trains(settings, rewarded, hinted):
    reads = ObjectiveSettings(**settings).reads
    assert (reads.rl, reads.opd) == (rewarded, hinted)
    assert reads.moves(Carried(rl=True)) == rewarded
    assert reads.moves(Carried(opd=True)) == hinted
    assert not reads.moves(Carried())


@pytest.mark.parametrize("tau", [-0.1, float("nan")])
def test_an_impossible_temperature_is_refused(tau):
    with pytest.raises(ValueError, match="tau is"):
        turn(tau=tau)
