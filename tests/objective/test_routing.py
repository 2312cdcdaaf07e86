"""Routing through the objective: the terms of a turn, the reason if it has none, and its part in the loss."""

import numpy as np
import pytest

from afterwit.lifecycle import Reason
from afterwit.objective import ObjectiveSettings, evaluate
from afterwit.verdict import Carried

from .batches import sample

SURE, UNSURE = np.log(np.full(3, 0.97)), np.log(np.full(3, 0.5))


def learned(chosen, turn, reward, sure=0.5):
    reads = ObjectiveSettings(**{"routing": "routed"} | chosen).reads
    return reads.learned(turn, reward=reward, confidence=sure)


BOTH, RL, OPD = Carried(rl=True, opd=True), Carried(rl=True), Carried(opd=True)


@pytest.mark.parametrize(
    ("chosen", "turn", "reward", "sure", "reason"),
    [
        ({}, BOTH, -1.0, 0.5, None),
        ({}, BOTH, 1.0, 0.5, None),
        ({}, BOTH, 1.0, 0.95, Reason.ALREADY_CONFIDENT),
        ({}, RL, 1.0, 0.95, Reason.ALREADY_CONFIDENT),
        ({"confident_above": 0.99}, BOTH, 1.0, 0.95, None),
        ({}, OPD, 1.0, 0.5, Reason.ALREADY_GOOD),
        ({"objective": "topk_opd"}, BOTH, 1.0, 0.5, Reason.ALREADY_GOOD),
        ({"w_rl": 0.0}, BOTH, 1.0, 0.99, Reason.ALREADY_GOOD),
        ({"objective": "topk_opd"}, RL, 1.0, 0.5, Reason.NO_SIGNAL),
        ({"objective": "topk_opd"}, RL, -1.0, 0.5, Reason.NO_SIGNAL),
        ({"w_opd": 0.0}, OPD, 0.0, 0.5, Reason.NO_SIGNAL),
    ],
)
def test_a_turn_that_learns_nothing_is_refused_with_the_truth(chosen, turn, reward, sure, reason):
    assert learned(chosen, turn, reward, sure).reason is reason


@pytest.mark.parametrize("chosen", [{"objective": "rl"}, {"w_opd": 0.0}])
def test_a_failure_whose_hint_nobody_reads_learns_by_its_reward(chosen):
    assert learned(chosen, BOTH, -1.0) == RL


@pytest.mark.parametrize(
    ("reward", "behaviour", "alone"),
    [(-1.0, UNSURE, "topk_opd"), (-1.0, SURE, "topk_opd"), (0.0, SURE, "topk_opd"), (1.0, UNSURE, "rl")],
)
def test_a_routed_sample_is_that_of_one_term(reward, behaviour, alone):
    made = sample(np.random.default_rng(1), reward=reward, behaviour=behaviour)
    routed = evaluate([made], {"routing": "routed", "beta": 0})
    single = evaluate([made], {"objective": alone, "beta": 0})
    assert routed.loss == single.loss != 0
    np.testing.assert_array_equal(routed.gradients[0], single.gradients[0])


def test_a_sure_success_is_in_no_term_and_in_no_mean():
    rng = np.random.default_rng(1)
    failed, sure = sample(rng, reward=-1.0), sample(rng, reward=1.0, behaviour=SURE)
    alone, together = (
        evaluate(batch, {"routing": "routed", "beta": 0, "baseline": "running"}, running_mean=0.2)
        for batch in ([failed], [failed, sure])
    )
    assert together.loss == alone.loss
    assert not together.gradients[1].any()


def test_without_reported_log_probs_nobody_is_known_to_be_sure():
    made = sample(np.random.default_rng(1), reward=1.0, behaviour=None)
    assert evaluate([made], {"routing": "routed", "beta": 0}).terms["rl"] != 0


def test_tokens_that_a_grammar_forced_make_nobody_sure():
    mask, behaviour = np.array([False, False, True]), np.log([1.0, 1.0, 0.5])
    made = sample(np.random.default_rng(1), reward=1.0, behaviour=behaviour, mask=mask)
    assert evaluate([made], {"routing": "routed", "beta": 0, "confident_above": 0.6}).terms["rl"] != 0
    assert evaluate([made], {"routing": "routed", "beta": 0, "confident_above": 0.5}).terms["rl"] == 0
