"""The combined surrogate and the objectives it becomes at its ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.objective import evaluate

from .batches import batches, sample
from .batches import settings as objective_settings

COMBINE = {"objective": "combine", "w_RL": 1, "beta": 0}


def rng(seed=0):
    return np.random.default_rng(seed)


def on_policy(made):
    return made | {"logits_old": None}


def assert_same(one, other, term, tolerance=1e-12):
    assert one.loss == pytest.approx(other.loss, abs=tolerance, rel=tolerance)
    assert one.terms["combine"] == pytest.approx(other.terms[term], abs=tolerance, rel=tolerance)
    for mine, theirs in zip(one.gradients, other.gradients, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance)


@given(batches(), objective_settings())
def test_without_a_weight_on_the_reward_it_is_token_opd_with_its_eps(samples, settings):
    settings = settings | {"w_RL": 0.0, "w_OPD": 1.0}
    as_token = {"objective": "token_opd", "token_eps_lo": 0.2, "token_eps_hi": settings["eps_hi"]}
    combined = evaluate(samples, settings | {"objective": "combine"})
    assert_same(combined, evaluate(samples, settings | as_token), "opd")


@given(batches(), objective_settings(), st.sampled_from((0.0, 0.3)))
def test_without_a_hint_it_is_rl(samples, settings, mean):
    samples = [made | {"logits_teacher": None} for made in samples]
    settings = settings | {"w_RL": 1.0}
    combined = evaluate(samples, settings | {"objective": "combine"}, running_mean=mean)
    assert_same(combined, evaluate(samples, settings | {"objective": "rl"}, running_mean=mean), "rl")


@given(st.integers(0, 2**32 - 1), st.sampled_from((0.3, 1.0)), st.sampled_from((0.0, 0.7, 1.0)))
def test_until_the_policy_has_moved_it_is_the_sum_of_both(seed, w_rl, w_opd):
    samples = [on_policy(sample(rng(seed + n), reward=reward)) for n, reward in enumerate((1.0, -1.0, 1.0))]
    weights = {"w_RL": w_rl, "w_OPD": w_opd, "beta": 0, "aggregation": "batch"}
    combined, rl, opd = (
        evaluate(samples, weights | {"objective": objective}) for objective in ("combine", "rl", "token_opd")
    )
    assert combined.loss == pytest.approx(rl.loss + opd.loss, abs=1e-12)
    for both, one, other in zip(combined.gradients, rl.gradients, opd.gradients, strict=True):
        np.testing.assert_allclose(both, one + other, rtol=0, atol=1e-12)


def test_afterwards_it_is_clipped_once_by_the_sign_of_what_both_say():
    """A reward of 1 under a teacher who is far below: the sum is negative, so a ratio above still learns."""
    made = sample(rng(), tokens=1, hints=1, drift=0.0, reward=1.0, behaviour=None)
    y = int(made["ids"][0])
    made["logits_teacher"][0, 0, y] -= 9.0
    made["logits_old"][0, y] -= 1.0  # pi is over pi_old by more than eps_hi
    assert not evaluate([made], COMBINE | {"w_OPD": 0.0}).gradients[0].any()
    assert evaluate([made], COMBINE).gradients[0][0, y] > 0


def test_a_sample_with_neither_hint_nor_reward_is_out_of_the_term():
    taught, empty = sample(rng(1)), sample(rng(2), hints=0, reward=0.0)
    alone, together = evaluate([taught], COMBINE), evaluate([taught, empty], COMBINE)
    assert together.loss == alone.loss
    assert not together.gradients[1].any()
    over_all = evaluate([taught, empty], COMBINE | {"aggregation": "batch"})
    assert over_all.loss == pytest.approx(alone.loss / 2, rel=1e-12)


@pytest.mark.parametrize(("weight", "lacks"), [("w_RL", {"hints": 0}), ("w_OPD", {"reward": 0.0})])
def test_a_part_without_weight_carries_nobody_into_the_mean(weight, lacks):
    whole, partial = sample(rng(1)), sample(rng(2), **lacks)
    alone, together = (evaluate(batch, COMBINE | {weight: 0.0}) for batch in ([whole], [whole, partial]))
    assert together.loss == alone.loss
    assert not together.gradients[1].any()


def test_either_part_alone_carries_a_sample():
    hinted, liked = on_policy(sample(rng(1), reward=0.0)), on_policy(sample(rng(2), hints=0))
    together = evaluate([hinted, liked], COMBINE)
    each = [evaluate([made], COMBINE) for made in (hinted, liked)]
    assert together.loss == pytest.approx((each[0].loss + each[1].loss) / 2, abs=1e-12)
    assert all(gradient.any() for gradient in together.gradients)


def test_a_baseline_shifts_the_reward_and_leaves_the_gap():
    made = on_policy(sample(rng(), behaviour=None, reward=1.0))
    gap = evaluate([made], COMBINE | {"w_RL": 0.0}).loss
    for mean, rest in ((0.0, 1.0), (0.25, 0.75), (1.0, 0.0)):
        got = evaluate([made], COMBINE | {"baseline": "running"}, running_mean=mean)
        assert got.loss == pytest.approx(gap - rest, abs=1e-12)


def test_a_greedy_turn_has_the_gap_alone_at_temperature_1():
    made = sample(rng(), tau=0.0)
    got = evaluate([made], COMBINE)
    assert got.loss == evaluate([made | {"tau": 1.0, "reward": 0.0, "behaviour": None}], COMBINE).loss


def test_it_reports_itself_and_no_term_that_it_replaces():
    got = evaluate([sample(rng())], COMBINE | {"w_RL": 0.5})
    assert got.terms["combine"] == got.loss != 0
    assert got.terms["rl"] == got.terms["opd"] == 0
