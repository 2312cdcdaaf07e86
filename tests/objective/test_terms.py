"""Which terms a turn carries."""

from itertools import product

import pytest

from afterwit.core.lifecycle import Reason
from afterwit.core.terms import TurnFacts, terms_of
from afterwit.objective import ObjectiveSettings


def turn(**facts):
    return TurnFacts(**({"reward": 1.0, "hints": 2, "tau": 0.6} | facts))


@pytest.mark.parametrize(("hints", "reward"), product((0, 1), (-1.0, 0.0, 1.0)))
def test_a_reward_carries_rl_and_a_hint_carries_opd(hints, reward):
    terms = terms_of(turn(hints=hints, reward=reward))
    assert (terms.rl, terms.opd) == (reward != 0, hints > 0)
    assert (terms.no_rl, terms.no_opd) == (
        None if reward else Reason.NO_SIGNAL,
        None if hints else Reason.NO_SIGNAL,
    )


@pytest.mark.parametrize(
    ("facts", "rl", "opd"),
    [
        ({"tau": 0.0}, Reason.GREEDY_WITHOUT_HINT, None),
        ({"tau": 0.049}, Reason.GREEDY_WITHOUT_HINT, None),
        ({"tau": 0.05}, None, None),
        ({"truncated": True}, None, None),
        ({"truncated": True, "processed": False}, Reason.TRUNCATED_SAMPLING_WITHOUT_HINT, None),
        ({"processed": False}, None, None),
        ({"penalised": True}, Reason.PENALTIES, Reason.PENALTIES),
        ({"cut_off": True}, Reason.CUT_AT_LENGTH, None),
        ({"cut_off": True, "evidence": True}, None, None),
        ({"renders": False}, None, Reason.RENDER_MISMATCH),
    ],
)
def test_how_a_turn_was_sampled_takes_terms_away(facts, rl, opd):
    terms = terms_of(turn(**facts))
    assert (terms.no_rl, terms.no_opd) == (rl, opd)
    assert (terms.rl, terms.opd) == (rl is None, opd is None)


def test_a_greedy_turn_is_scored_at_temperature_1_and_others_at_their_own():
    assert terms_of(turn(tau=0.0)).tau == 1.0
    assert terms_of(turn(tau=0.3)).tau == 0.3


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
    chosen = ObjectiveSettings(**settings)
    assert chosen.learns(rl=True, opd=False) == rewarded
    assert chosen.learns(rl=False, opd=True) == hinted
    assert not chosen.learns(rl=False, opd=False)


@pytest.mark.parametrize("facts", [{"hints": -1}, {"tau": -0.1}, {"tau": float("nan")}])
def test_impossible_facts_are_refused(facts):
    with pytest.raises(ValueError, match=r"-1 hints|tau is"):
        turn(**facts)
