"""Samples in each trainer's form: ids, masks and log-probs in their places."""

from __future__ import annotations

from typing import Any

import pytest

from afterwit.exporting.examples import LeftOut
from afterwit.exporting.formats import FORMATS
from afterwit.lifecycle import Reason
from afterwit.turn import Finish, Kind
from tests.exporting.examples import HINT, an_example, asked, partly_forced

SAMPLES = ("trl", "verl", "atropos")


def rows(format: str, *examples: Any) -> list[Any]:
    return list(FORMATS[format](examples))


def test_a_trl_sample_trains_on_what_was_not_forced_and_shows_its_hint() -> None:
    (row,) = rows("trl", an_example("a", -1, hint=HINT, sampled=partly_forced()))
    assert (row["prompt_ids"], row["completion_ids"]) == ([1, 2, 3], [4, 5, 6])
    assert row["env_mask"] == [1, 0, 1]
    assert row["logprobs"] == [-0.5, -0.25, -1.5]
    assert (row["label"], row["reward"], row["advantage"]) == (False, -1.0, -1.0)
    assert row["privileged_context"] == HINT
    assert row["versions"] == [0, 1, 1]
    assert row["completion"] == [{"role": "assistant", "content": "response of a"}]


def test_a_reward_of_zero_is_no_label() -> None:
    assert [row["label"] for row in rows("trl", an_example("a", 0, hint=HINT), an_example("b", 1))] == [
        None,
        True,
    ]


def test_a_verl_sample_has_its_reward_at_the_last_token_and_no_advantage_where_forced() -> None:
    (row,) = rows("verl", an_example("a", -1, sampled=partly_forced()))
    assert row["token_level_scores"] == [0.0, 0.0, -1.0]
    assert row["advantages"] == [-1.0, 0.0, -1.0]
    assert (row["prompts"], row["responses"], row["response_mask"]) == ([1, 2, 3], [4, 5, 6], [1, 0, 1])
    assert row["rollout_log_probs"] == [-0.5, -0.25, -1.5]


def test_samples_of_one_prompt_are_one_atropos_group_and_others_are_not() -> None:
    first, second = an_example("a", 1), an_example("b", -1, sampled=partly_forced())
    other = an_example("c", 1, conversation=asked("Close it."))
    stranger = an_example("d", 1, scope="another key")
    groups = rows("atropos", first, other, stranger, second)
    assert sorted(len(group["tokens"]) for group in groups) == [1, 1, 2]
    (group,) = [group for group in groups if len(group["tokens"]) == 2]
    assert group["tokens"] == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]]
    assert group["masks"] == [[-100, -100, -100, 4, 5], [-100, -100, -100, 4, -100, 6]]
    assert group["inference_logprobs"][0] == [1.0, 1.0, 1.0, -0.5, -0.25]
    assert group["scores"] == [1.0, -1.0]
    assert [each["turn"] for each in group["overrides"]] == ["a", "b"]


def test_a_prompt_that_comes_up_while_the_store_is_read_is_a_group_too() -> None:
    class Growing:
        """One example more the second time."""

        def __init__(self) -> None:
            self.times = 0

        def __iter__(self) -> Any:
            self.times += 1
            return iter([an_example(str(index), 1) for index in range(self.times)])

    (group, rest) = list(FORMATS["atropos"](Growing()))
    assert (len(group["tokens"]), len(rest["tokens"])) == (1, 1)


@pytest.mark.parametrize("format", SAMPLES)
@pytest.mark.parametrize(
    ("example", "reason"),
    [
        (an_example("a", None), "not_judged"),
        (an_example("a", None, changes={"reason": Reason.NO_NEXT_STATE}), "no_next_state"),
        (an_example("a", 1, changes={"reason": Reason.REVERTED}), "reverted"),
        (an_example("a", 1, teaches=False), "key_does_not_teach"),
        (an_example("a", 1, kind=Kind.SIDE), "side_turn"),
        (an_example("a", 1, finish=Finish.CLIENT_LEFT), "client_left"),
        (an_example("a", -1, changes={"reason": Reason.CUT_AT_LENGTH}), "cut_at_length"),
    ],
)
def test_what_may_not_train_is_left_out_with_its_reason(format: str, example: Any, reason: str) -> None:
    assert rows(format, example) == [LeftOut(turn="a", reason=reason)]
    assert rows("sft", example) == [LeftOut(turn="a", reason=reason)]


@pytest.mark.parametrize("reason", [Reason.STALE, Reason.NO_SIGNAL, Reason.LEARNER_FAILED])
def test_what_only_our_learner_cannot_use_is_in_the_data(reason: Reason) -> None:
    assert not isinstance(rows("trl", an_example("a", 1, changes={"reason": reason}))[0], LeftOut)


def test_practice_is_marked_and_in_no_group_of_rewards() -> None:
    examples = an_example("a", 1), an_example("p", 0, hint=HINT, kind=Kind.PRACTICE)
    own, practised = rows("trl", *examples)
    assert (own["kind"], practised["kind"]) == ("main", "practice")
    assert own["group"] != practised["group"]
    assert [row["extra_info"]["kind"] for row in rows("verl", *examples)] == ["main", "practice"]
    groups = rows("atropos", *examples)
    assert [group["scores"] for group in groups] == [[1.0], [0.0]]
    assert [group["overrides"][0]["kind"] for group in groups] == ["main", "practice"]
