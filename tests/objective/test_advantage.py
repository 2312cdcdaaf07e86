"""Rewards less their baseline."""

import pytest

from afterwit.objective.advantage import advantages
from afterwit.objective.settings import ObjectiveSettings


def found(rewards, groups=None, *, mean=0.0, **settings):
    return advantages(rewards, groups or [None] * len(rewards), ObjectiveSettings(**settings), mean=mean)


def test_without_a_baseline_the_advantage_is_the_reward():
    assert found([1.0, None, -1.0], mean=0.3).values == (1.0, None, -1.0)


def test_the_running_mean_before_the_batch_is_taken_off_and_then_moves():
    first = found([1.0, None, 0.5], baseline="running", baseline_decay=0.5)
    assert (first.values, first.mean) == ((1.0, None, 0.5), 0.375)
    assert found([1.0], mean=first.mean, baseline="running").values == (0.625,)
    assert found([None], mean=0.2, baseline="running").mean == 0.2


def test_a_real_group_is_z_scored():
    rewards, groups = [1.0, -1.0, 1.0, -1.0, 1.0], ["a", "b", "a", "a", "b"]
    third = 1 / 3**0.5
    half = 1 / 2**0.5
    expected = (third, -half, third, -2 * third, half)
    assert found(rewards, groups, baseline="group").values == pytest.approx(expected)


def test_a_single_sample_is_never_z_scored():
    rewards, groups = [1.0, -1.0, 1.0, None], ["a", "b", None, "a"]
    assert found(rewards, groups, baseline="group").values == (1.0, -1.0, 1.0, None)


def test_a_group_that_agrees_says_nothing():
    assert found([-1.0, -1.0], ["a", "a"], baseline="group").values == (0.0, 0.0)


def test_misaligned_groups_are_refused():
    with pytest.raises(ValueError, match="2 rewards but 1 groups"):
        found([1.0, 1.0], ["a"])
