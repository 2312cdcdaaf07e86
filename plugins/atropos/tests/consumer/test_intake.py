"""A batch of groups becomes an update's items: each row at its token, each omission with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from afterwit.objective.settings import ObjectiveSettings
from afterwit_atropos import consumer as reasons
from afterwit_atropos.consumer import Intake, Limits, intake
from plugins.atropos.tests.consumer.groups import VOCABULARY, plain_group, with_rows

LIMITS = Limits(vocabulary=VOCABULARY, max_tokens=64, max_staleness=16, version=20, temperature=0.7)
GROUPED = ObjectiveSettings(baseline="group")


def taken(*groups: Any, settings: ObjectiveSettings = GROUPED, limits: Limits = LIMITS) -> Intake:
    return intake([json.loads(json.dumps(group)) for group in groups], limits, settings)


def noted(group: dict[str, Any], *, version: int) -> dict[str, Any]:
    turns = {"turns": [{"begin": 3, "end": 5, "version": version}]}
    notes = {"afterwit": {"tau": 1.0, "teacher": "base"}}
    return group | {"overrides": [{"afterwit": turns}] * len(group["tokens"]), "group_overrides": notes}


def test_a_sequence_becomes_a_response_from_its_first_token_in_the_loss_to_its_last() -> None:
    group = plain_group()
    found = taken(group)
    assert [item.student.prompt for item in found.items] == [tuple(row[:3]) for row in group["tokens"]]
    assert [item.student.response for item in found.items] == [tuple(row[3:]) for row in group["tokens"]]
    assert found.items[0].behaviour.forced == (False, False, True, False, False)
    assert found.items[0].behaviour.logprobs == (-1.0, -2.0, 0.0, -1.5, -0.5)
    assert found.items[0].behaviour.temperature == 0.7
    assert [(item.reward, item.group) for item in found.items] == [(0.0, (0.0, 1.0)), (1.0, (0.0, 1.0))]


@pytest.mark.parametrize("k", [1, 3])
def test_a_row_is_for_its_own_token(k: int) -> None:
    (item, _) = taken(with_rows(plain_group(), k)).items
    assert [None if row is None else row.ids[0] for row in item.teacher_rows or ()] == [
        None if forced else token
        for token, forced in zip(item.student.response, item.behaviour.forced, strict=True)
    ]


def test_a_group_of_the_librarys_own_teacher_trains_by_its_several_ids() -> None:
    """`TeacherDistillationEnv`: a row at each token but the first, and the sampled id where it ranks."""
    group = plain_group()
    ids = [[[], *([(token + 1) % VOCABULARY, token] for token in row[1:])] for row in group["tokens"]]
    group |= {"distill_token_ids": ids, "distill_logprobs": [[[], *[[-0.5, -1.5]] * 7]] * 2}
    found = taken(group, settings=ObjectiveSettings(objective="hybrid", baseline="group"))
    assert (found.refused, found.objective.objective) == ([], "hybrid_distill")
    for item in found.items:
        rows = zip(item.teacher_rows or (), item.student.response, item.behaviour.forced, strict=True)
        assert all(row is None if forced else row.ids[0] == token for row, token, forced in rows)


@pytest.mark.parametrize(
    ("asked", "by_token", "by_top_k"),
    [
        ("hybrid", "hybrid_token", "hybrid_distill"),
        ("topk_opd", "token_opd", "topk_opd"),
        ("topk_distill", "token_opd", "topk_distill"),
        ("token_opd", "token_opd", "token_opd"),
        ("combine", "combine", "combine"),
        ("rl", "rl", "rl"),
    ],
)
def test_the_rows_decide_what_the_objective_can_learn_from(asked: str, by_token: str, by_top_k: str) -> None:
    settings = ObjectiveSettings(objective=asked, baseline="group")
    one, several = with_rows(plain_group(), 1), with_rows(plain_group(seed=1), 3)
    assert taken(one, settings=settings).objective.objective == by_token
    assert taken(several, settings=settings).objective.objective == by_top_k
    assert taken(one, several, settings=settings).objective.objective == by_token
    assert taken(several, settings=settings).objective.subset == "teacher"


def test_a_bad_group_is_refused_with_its_reason_and_the_others_train() -> None:
    good = plain_group()
    bad = [
        plain_group(scores=(0.0, 1.0), tokens=[[1, 2], [3, VOCABULARY]]),
        plain_group(inference_logprobs=[[1.0] * 8] * 2),
        {"scores": [1.0]},
        with_rows(good, 3) | {"distill_logprobs": [[[0.0] * 3] * 8] * 2},
        [],
    ]
    found = taken(bad[0], good, *bad[1:])
    assert len(found.items) == 2
    assert (found.groups, len(found.refused)) == (6, 5)
    assert found.refused[0].startswith("group 1 of 6 (unknown_id): ")
    assert "without a log-prob" in found.refused[1]


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (plain_group(masks=[[-100] * 8] * 2), reasons.NOTHING_IN_LOSS),
        (plain_group(scores=(1.0, 1.0)), reasons.NO_SIGNAL),
        (plain_group(scores=(1.0,)), reasons.NO_SIGNAL),
        (plain_group(advantages=[[0.0] * 8] * 2), reasons.NO_SIGNAL),
        (plain_group(advantages=[[float(at) for at in range(8)]] * 2), reasons.TOKEN_ADVANTAGES),
        (noted(plain_group(), version=3), reasons.STALE),
    ],
)
def test_a_sequence_that_cannot_train_is_left_out_with_its_reason(group: Any, reason: str) -> None:
    found = taken(group)
    assert found.items == []
    assert found.left_out == {reason: len(group["tokens"])}


def test_a_token_that_nothing_precedes_cannot_be_predicted() -> None:
    group = plain_group()
    group["masks"] = group["tokens"]
    group["inference_logprobs"] = [[-1.0] * 8] * 2
    assert taken(group).left_out == {reasons.NO_PROMPT: 2}


def test_a_sequence_longer_than_the_context_is_left_out() -> None:
    limits = Limits(vocabulary=VOCABULARY, max_tokens=7, max_staleness=16, version=0, temperature=1.0)
    assert taken(plain_group(), limits=limits).left_out == {reasons.TOO_LONG: 2}


def test_rows_train_where_scores_say_nothing() -> None:
    found = taken(with_rows(plain_group(scores=(1.0, 1.0)), 3))
    assert [item.reward for item in found.items] == [None, None]
    assert all(item.teacher_rows for item in found.items)


def test_rewards_alone_are_read_if_the_objective_reads_no_teacher() -> None:
    found = taken(with_rows(plain_group(), 3), settings=ObjectiveSettings(objective="rl", baseline="group"))
    assert [item.teacher_rows for item in found.items] == [None, None]


def test_without_rows_an_objective_of_the_teacher_alone_has_nothing_to_learn() -> None:
    settings = ObjectiveSettings(objective="token_opd", baseline="group")
    assert taken(plain_group(), settings=settings).left_out == {reasons.NO_SIGNAL: 2}


def test_an_advantage_that_the_group_brings_takes_the_scores_place() -> None:
    advantages = [[9.0, 9.0, 9.0, 0.5, 0.5, 9.0, 0.5, 0.5], [-0.25] * 8]
    found = taken(plain_group(advantages=advantages))
    assert [(item.reward, item.group) for item in found.items] == [(0.5, ()), (-0.25, ())]


@pytest.mark.parametrize("field", ["tokens", "masks", "scores", "inference_logprobs", "distill_token_ids"])
def test_a_refusal_quotes_no_text(field: str) -> None:
    group = with_rows(plain_group(), 3)
    held = group[field]
    while isinstance(held[-1], list):
        held = held[-1]
    held[-1] = "a private word"
    (sentence,) = taken(group).refused
    assert "private" not in sentence


def test_the_temperature_and_the_age_of_a_noted_group_are_its_own() -> None:
    (item, _) = taken(noted(plain_group(), version=18)).items
    assert (item.behaviour.temperature, item.staleness) == (1.0, 2)
    (unborn, _) = taken(noted(plain_group(), version=25)).items
    assert unborn.staleness == 0


def test_log_probs_may_be_missing_and_nothing_is_corrected_then() -> None:
    group = plain_group()
    del group["inference_logprobs"]
    assert [item.behaviour.logprobs for item in taken(group).items] == [None, None]
