"""A group as it leaves the environment, and what the environment counts."""

from __future__ import annotations

from typing import Any

import pytest

from afterwit_atropos.environment.metrics import RolloutMetrics, evaluated
from afterwit_atropos.group import Profile
from afterwit_atropos.reward import Reward, RewardWeights
from afterwit_atropos.rollout import ScoredRollout
from afterwit_atropos.wire import group_data, read
from tests.fakes.rollouts import a_scored_rollout

ALL = (0, 1, 2)


Attempted = tuple[Reward, ScoredRollout]


def attempted(correctness: float, *, unscored: tuple[int, ...] = ()) -> Attempted:
    reward = RewardWeights().reward(correctness=correctness, efficiency=1.0, tool_usage=1.0)
    return reward, a_scored_rollout(unscored=unscored)


def data_of(*done: Attempted, messages: bool = False, profile: Profile = Profile.TOPK) -> Any:
    scored, scores = [each for _, each in done], [reward.total for reward, _ in done]
    return group_data(scored, scores, profile, 3, messages=messages)


def sent(*done: Attempted, messages: bool = False, profile: Profile = Profile.TOPK) -> dict[str, Any]:
    data = data_of(*done, messages=messages, profile=profile)
    assert data is not None
    return data


@pytest.mark.parametrize("profile", list(Profile))
def test_rows_and_log_probs_leave_with_each_group(profile: Profile) -> None:
    data = sent(attempted(1.0), attempted(0.0), profile=profile)
    group = read(data, vocabulary=2000)
    assert group.distils
    assert data["scores"] == [pytest.approx(1.0), pytest.approx(0.3)]
    assert data["messages"] is None
    assert data["group_overrides"]["group_size"] == 2
    assert all(sequence.logprobs is not None for sequence in group.sequences)


def test_without_any_row_the_rewards_alone_leave() -> None:
    data = sent(attempted(1.0, unscored=ALL), attempted(0.0, unscored=ALL))
    assert data["distill_token_ids"] is None
    assert data["distill_logprobs"] is None


def test_equal_rewards_leave_if_a_teacher_has_rows_and_else_say_nothing() -> None:
    assert sent(attempted(1.0), attempted(1.0))["distill_token_ids"] is not None
    done = (attempted(1.0, unscored=ALL), attempted(1.0, unscored=ALL))
    assert data_of(*done) is None


def test_messages_leave_if_they_are_asked_for() -> None:
    first = sent(attempted(1.0), attempted(0.0), messages=True)["messages"][0]
    assert [message["role"] for message in first][:2] == ["user", "assistant"]


def test_metrics_have_the_published_names() -> None:
    metrics = RolloutMetrics()
    for reward, scored in (attempted(1.0), attempted(0.5, unscored=ALL)):
        metrics.add(reward, scored)
    values = metrics.values()
    published = {
        "train/mean_reward": 0.825,
        "train/mean_correctness": 0.75,
        "train/mean_efficiency": 1.0,
        "train/mean_tool_usage": 1.0,
        "train/pass_rate": 0.5,
        "train/total_rollouts": 2,
        "opd/mean_hints_per_rollout": 1.5,
        "opd/mean_turns_scored": 1.5,
        "opd/hint_rate": 0.5,
        "opd/total_hints": 3,
        "opd/total_scored_turns": 3,
    }
    assert {name: values[name] for name in published} == pytest.approx(published)
    assert values["opd/unscored_no_signal"] == 3


def test_what_was_not_measured_has_no_metric() -> None:
    assert RolloutMetrics().values() == {}
    assert evaluated([]) == {"eval/n_items": 0}


def test_an_evaluation_has_the_published_names() -> None:
    rewards = [attempted(correctness)[0] for correctness in (1.0, 0.5)]
    assert evaluated(rewards) == pytest.approx(
        {
            "eval/n_items": 2,
            "eval/mean_correctness": 0.75,
            "eval/mean_reward": 0.825,
            "eval/pass_rate": 0.5,
        }
    )
