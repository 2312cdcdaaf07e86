"""Rewards less their baseline."""

import pytest

from afterwit.objective import ObjectiveSettings, evaluate
from afterwit.objective.sample import advantages
from afterwit.objective.settings import BASELINES, Rewarded


def found(*batch, mean=0.0, **settings):
    return advantages(batch, ObjectiveSettings(**settings), mean=mean)


@pytest.mark.parametrize("baseline", BASELINES)
def test_a_sample_without_an_rl_term_has_no_advantage(baseline):
    assert found(None, baseline=baseline).values == (None,)


def test_without_a_baseline_the_advantage_is_the_reward():
    assert found(Rewarded(1.0), None, Rewarded(-1.0), mean=0.3).values == (1.0, None, -1.0)


def test_the_running_mean_before_the_batch_is_taken_off_and_then_moves():
    first = found(Rewarded(1.0), None, Rewarded(0.5), baseline="running", baseline_decay=0.5)
    assert (first.values, first.mean) == ((1.0, None, 0.5), 0.375)
    assert found(Rewarded(1.0), mean=first.mean, baseline="running").values == (0.625,)
    assert found(None, mean=0.2, baseline="running").mean == 0.2


def test_a_group_is_z_scored_with_members_that_have_no_reward_and_are_not_in_the_batch():
    group = (1.0, 1.0, 0.0)
    third = 1 / 3**0.5
    assert found(Rewarded(1.0, group), baseline="group").values == pytest.approx((third,))
    assert found(Rewarded(-1.0, (-1.0, 1.0)), baseline="group").values == pytest.approx((-(0.5**0.5),))


def test_a_single_sample_is_never_z_scored():
    assert found(Rewarded(1.0, (1.0,)), Rewarded(-1.0), baseline="group").values == (1.0, -1.0)


def test_a_group_that_agrees_carries_no_term_and_leaves_its_neighbours_gradient_whole():
    assert found(Rewarded(-1.0, (-1.0, -1.0)), baseline="group").values == (None,)
    made = {"logits_current": [[1.0, 0.0]], "ids": [0]}
    mixed = [made | {"group": "p", "reward": reward} for reward in (1.0, -1.0)]
    alike = [made | {"group": "q", "reward": 1.0}] * 2
    settings = {"objective": "rl", "w_rl": 1, "baseline": "group", "beta": 0}
    alone, together = evaluate(mixed[:1], settings), evaluate([*mixed, *alike], settings)
    assert evaluate(mixed, settings).loss == pytest.approx(together.loss)
    assert alone.loss != 0


def test_in_a_batch_of_arrays_the_group_is_all_samples_of_the_prompt():
    """Rewards (1, 1, 0): the third is without a term, and is still part of the mean."""
    made = {"logits_current": [[1.0, 0.0]], "ids": [0], "group": "p"}
    batch = [made | {"reward": reward} for reward in (1.0, 1.0, 0.0)]
    loss = evaluate(batch, {"objective": "rl", "w_rl": 1, "baseline": "group", "beta": 0}).loss
    assert loss == pytest.approx(-1 / 3**0.5)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_not_a_number_is_refused(reward):
    with pytest.raises(ValueError, match="not finite"):
        found(Rewarded(reward))
    with pytest.raises(ValueError, match="not finite"):
        found(Rewarded(1.0, (1.0, reward)))
    with pytest.raises(ValueError, match="not finite"):
        evaluate([{"logits_current": [[1.0, 0.0]], "ids": [0], "reward": reward}], {"beta": 0})
