"""A group out and in again: what arrives is what was scored, and what does not fit is refused."""

from __future__ import annotations

import copy
import json
import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.turn import Sampled, Sampling
from afterwit.verdict import Feedback
from afterwit_atropos.group import BadGroup, Profile, Refusal, group_of
from afterwit_atropos.rollout import Rollout
from afterwit_atropos.wire import SENTINEL, read, write
from tests.fakes.rollouts import HINT, a_rollout, a_scored_rollout
from tests.fakes.turns import a_turn

VOCABULARY = 2000


def a_group(**changes: Any):
    scored = [a_scored_rollout(unscored=(1,)), a_scored_rollout()]
    return group_of(scored, [0.25, 1.0], **changes)


def sent(profile: Profile, **changes: Any) -> dict[str, Any]:
    """As a server gives it on: through strict JSON."""
    return json.loads(json.dumps(write(a_group(**changes), profile), allow_nan=False))


def test_the_top_k_form_gives_back_the_very_group():
    assert read(sent(Profile.TOPK, top_k=3), vocabulary=VOCABULARY) == a_group(top_k=3)


def test_the_sampled_form_gives_back_the_group_with_the_sampled_ids_alone():
    ours, theirs = a_group(), read(sent(Profile.SAMPLED), vocabulary=VOCABULARY)
    for one, other in zip(ours.sequences, theirs.sequences, strict=True):
        assert other.logprobs == one.logprobs
        assert [row and (row.ids, row.logprobs) for row in other.rows or ()] == [
            row and (row.ids[:1], row.logprobs[:1]) for row in one.rows or ()
        ]


def test_a_position_that_is_not_distilled_has_advantage_zero_in_the_sampled_form():
    data = sent(Profile.SAMPLED)
    for rows, own, sequence in zip(
        data["distill_logprobs"], data["inference_logprobs"], a_group().sequences, strict=True
    ):
        apart = [row[0] - value for row, value in zip(rows, own, strict=True)]
        assert [gap != 0 for gap in apart] == [row is not None for row in sequence.rows or ()]


def test_a_position_that_is_not_distilled_is_empty_in_the_top_k_form_and_nothing_is_zero_filled():
    data = sent(Profile.TOPK)
    lengths = [len(row) for row in data["distill_token_ids"][0]]
    assert lengths == [len(row) for row in data["distill_logprobs"][0]]
    assert lengths == [0] * 7 + [3] * 4 + [0] * 14 + [3] * 4
    assert all(value != 0.0 for rows in data["distill_logprobs"] for row in rows for value in row)


@pytest.mark.parametrize("profile", list(Profile))
def test_log_probs_always_travel_with_the_sentinel_where_nothing_was_sampled(profile):
    data = sent(profile)
    for own, mask in zip(data["inference_logprobs"], data["masks"], strict=True):
        assert [value == SENTINEL for value in own] == [inside == -100 for inside in mask]


def test_what_the_server_has_no_field_for_travels_in_the_overrides():
    data = sent(Profile.TOPK, top_k=3)
    noted = data["group_overrides"]["afterwit"]
    assert (noted["teacher"], noted["tau"], noted["top_k"]) == ("live", 1.0, 3)
    assert data["group_overrides"]["group_size"] == 2
    first, second, _ = data["overrides"][0]["afterwit"]["turns"]
    assert (first["begin"], first["end"], first["version"], first["teacher_version"]) == (7, 11, 3, 3)
    assert len(first["hints"][0]) == 64
    assert (second["unscored"], "hints" in second) == ("no_signal", False)
    assert HINT not in json.dumps(data)


def test_turns_that_do_not_continue_one_another_are_several_sequences_with_one_score():
    rollout = a_rollout(2)
    first, second = rollout.in_order
    rewritten = replace(second, prompt_ids=(1, 2, 99, *second.prompt_ids[3:]))
    split = a_rollout(2, turns=dict(zip(rollout.turns, (first, rewritten), strict=True)))
    group = group_of([a_scored_rollout(split)], [0.5])
    assert [sequence.score for sequence in group.sequences] == [0.5, 0.5]
    assert write(group, Profile.TOPK)["group_overrides"]["group_size"] == 2


def test_a_forced_token_has_no_row_and_no_log_prob():
    turn = a_turn(
        "a",
        sampled=Sampled(ids=(4, 5), logprobs=(0.0, -0.5), versions=(0, 0), forced=(True, False)),
    )
    messages = (*turn.conversation.messages, turn.message)
    rollout = Rollout(messages=messages, turns={1: turn}, outcome=Feedback(reward=1))
    (sequence,) = group_of([a_scored_rollout(rollout)], [1.0]).sequences
    assert [row is not None for row in sequence.rows or ()] == [False, False, False, False, True]


def test_a_group_of_another_environment_needs_no_teacher_and_no_notes():
    data = {"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [1], "group_overrides": {"group_size": 1}}
    group = read(data, vocabulary=3)
    assert (group.distils, group.notes, group.sequences[0].logprobs) == (False, None, None)
    with pytest.raises(ValueError, match="log-probs"):
        write(group, Profile.TOPK)


def test_scores_and_rollouts_are_one_for_one():
    with pytest.raises(ValueError, match="1 rollouts but 2 scores"):
        group_of([a_scored_rollout()], [1.0, 2.0])


def test_a_policy_that_sampled_of_a_part_of_the_vocabulary_is_not_compared_with_its_teacher():
    rollout = a_rollout(1)
    ((at, turn),) = rollout.turns.items()
    cut = replace(rollout, turns={at: replace(turn, sampling=Sampling(max_tokens=8, top_p=0.9))})
    group = group_of([a_scored_rollout(cut)], [1.0])
    assert read(write(group, Profile.TOPK), vocabulary=VOCABULARY).notes == group.notes
    with pytest.raises(ValueError, match="top_p 1"):
        write(group, Profile.SAMPLED)


def test_a_group_has_one_teacher():
    scored = a_scored_rollout()
    other = replace(scored, teacher="base")
    with pytest.raises(ValueError, match="one teacher"):
        group_of([scored, other], [1.0, 2.0])


def _set(path: tuple[Any, ...], value: Any):
    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


def _cut(*path: Any):
    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for key in path:
            at = at[key]
        at.pop()

    return change


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


ROW = ("distill_logprobs", 0, 7)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (_cut("scores"), Refusal.LENGTHS),
        (_cut("masks", 0), Refusal.LENGTHS),
        (_cut("inference_logprobs", 1), Refusal.LENGTHS),
        (_cut("distill_token_ids"), Refusal.LENGTHS),
        (_cut("distill_logprobs", 0), Refusal.LENGTHS),
        (_cut("overrides"), Refusal.LENGTHS),
        (_set(("tokens",), []), Refusal.LENGTHS),
        (_set(("tokens", 0), "text"), Refusal.MALFORMED),
        (_set(("tokens", 0, 0), 1.5), Refusal.MALFORMED),
        (_set(("tokens", 0, 0), True), Refusal.MALFORMED),
        (_set(("scores", 0), "1"), Refusal.MALFORMED),
        (_set(("tokens", 0, 0), VOCABULARY), Refusal.UNKNOWN_ID),
        (_set(("tokens", 0, 0), -1), Refusal.UNKNOWN_ID),
        (_set(("distill_token_ids", 0, 7, 1), VOCABULARY), Refusal.UNKNOWN_ID),
        (_set(("scores", 0), math.nan), Refusal.NOT_FINITE),
        (_set(("scores", 0), 10**400), Refusal.NOT_FINITE),
        (_set(("scores", 0), -1e10), Refusal.NOT_FINITE),
        (_set(("advantages",), [[1e30] * 29] * 2), Refusal.NOT_FINITE),
        (_set(("inference_logprobs", 0, 7), -1e30), Refusal.LOGPROBS),
        (_set((*ROW, 2), -1e30), Refusal.ROWS),
        (_set(ROW, [-0.001, -0.001, -0.001]), Refusal.ROWS),
        (_set(("inference_logprobs", 0, 7), -math.inf), Refusal.NOT_FINITE),
        (_set((*ROW, 1), -math.inf), Refusal.NOT_FINITE),
        (_set(("masks", 0, 7), 1), Refusal.MASK),
        (_set(("inference_logprobs", 0, 7), 1.0), Refusal.LOGPROBS),
        (_set(("inference_logprobs", 0, 7), 0.5), Refusal.LOGPROBS),
        (_set(("distill_token_ids",), None), Refusal.ROWS),
        (_cut(*ROW), Refusal.ROWS),
        (_set(("distill_token_ids", 0, 7, 0), 9), Refusal.ROWS),
        (_set(("distill_token_ids", 0, 7), [0, 0, 0]), Refusal.ROWS),
        (_set(("group_overrides", "afterwit", "top_k"), 2), Refusal.ROWS),
        (_set(("group_overrides", "afterwit", "profile"), "top"), Refusal.NOTES),
        (_set(("group_overrides", "afterwit"), {}), Refusal.NOTES),
        (_set(("group_overrides", "afterwit", "tau"), 0), Refusal.NOTES),
        (_set(("group_overrides", "afterwit", "tau"), "inf"), Refusal.NOTES),
        (_set(("group_overrides", "afterwit", "tau"), 1e-300), Refusal.NOTES),
        (_set(("group_overrides", "afterwit", "tau"), 10**400), Refusal.NOTES),
        (_set(("group_overrides", "afterwit", "tau"), 1 << 20_000), Refusal.NOTES),
        (_set(("group_overrides", "afterwit", "tau"), nested(5000)), Refusal.NOTES),
        (_set(("group_overrides", "afterwit", "top_k"), "3"), Refusal.NOTES),
        (_set(("group_overrides", "afterwit", "profile"), 1), Refusal.NOTES),
        (_set(("overrides", 0, "afterwit", "turns", 0, "begin"), math.inf), Refusal.NOTES),
        (_set(("overrides", 0, "afterwit", "turns", 0, "version"), 1.5), Refusal.NOTES),
        (_set(("overrides", 0, "afterwit", "turns", 0, "end"), 99), Refusal.NOTES),
    ],
)
def test_a_group_that_does_not_fit_is_refused_with_the_reason(change, refusal):
    data = copy.deepcopy(sent(Profile.TOPK, top_k=3))
    change(data)
    with pytest.raises(BadGroup) as refused:
        read(data, vocabulary=VOCABULARY)
    assert refused.value.refusal is refusal


@pytest.mark.parametrize("data", [None, [], "group", {}, {"tokens": [[1]], "masks": [[1]]}])
def test_what_is_no_group_is_refused(data):
    with pytest.raises(BadGroup):
        read(data, vocabulary=VOCABULARY)


def foreign(rows: list[tuple[list[int], list[float]]], masks: list[int] | None = None) -> dict[str, Any]:
    """A group of one sequence, [7, 8, 9], as an environment that is not ours writes it."""
    return {
        "tokens": [[7, 8, 9]],
        "masks": [masks or [-100, 8, 9]],
        "scores": [1.0],
        "inference_logprobs": [[1.0, -0.5, -0.5]],
        "distill_token_ids": [[ids for ids, _ in rows]],
        "distill_logprobs": [[logprobs for _, logprobs in rows]],
    }


def rows_of(data: dict[str, Any]) -> list[tuple[tuple[int, ...], tuple[float, ...]] | None]:
    (sequence,) = read(data, vocabulary=VOCABULARY).sequences
    return [row and (row.ids, row.logprobs) for row in sequence.rows or ()]


def test_a_teacher_of_the_librarys_own_is_read_at_the_sampled_ids_wherever_they_stand():
    """`TeacherDistillationEnv` sends vLLM's prompt log-probs: at every token, in the order of their ranks."""
    prompt, likeliest = ([3, 7], [-0.1, -4.0]), ([8, 3], [-0.2, -2.0])
    by_rank = ([2, 3, 9], [-0.9, -1.0, -3.0])
    assert rows_of(foreign([([], []), likeliest, by_rank])) == [
        None,
        ((8, 3), (-0.2, -2.0)),
        ((9, 2, 3), (-3.0, -0.9, -1.0)),
    ]
    assert rows_of(foreign([prompt, likeliest, by_rank], [-100, -100, 9]))[:2] == [None, None]
    anyhow = ([3, 9, 2], [-1.0, -3.0, -0.9])
    assert rows_of(foreign([([], []), likeliest, anyhow]))[2] == ((9, 2, 3), (-3.0, -0.9, -1.0))


@pytest.mark.parametrize("token", [0, 8])
@pytest.mark.parametrize("k", [2, 50])
def test_the_zeros_of_the_published_environment_are_no_row(token, k):
    data = foreign([([0] * k, [0.0] * k)] * 2 + [([9, 4, *[0] * (k - 2)], [-0.4, -1.5, *[0.0] * (k - 2)])])
    data["tokens"], data["masks"] = [[7, token, 9]], [[-100, token, 9]]
    assert rows_of(data) == [None, None, ((9, 4), (-0.4, -1.5))]


def test_a_teacher_that_is_sure_of_the_id_zero_keeps_it():
    data = foreign([([], []), ([8, 0], [-30.0, 0.0]), ([9], [-0.1])])
    assert rows_of(data)[1] == ((8, 0), (-30.0, 0.0))


def test_a_row_in_the_loss_without_the_sampled_id_is_refused_as_shifted():
    with pytest.raises(BadGroup, match="at token 2 lacks the sampled id 9"):
        read(foreign([([], []), ([8], [-0.2]), ([2, 3], [-0.9, -1.0])]), vocabulary=VOCABULARY)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["afterwit", "turns"]), inner)
    ),
    max_leaves=5,
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything in it."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [found for key, each in inner for found in [(*path, key), *places(each, (*path, key))]]


@given(data=st.data(), profile=st.sampled_from(Profile))
def test_whatever_stands_in_a_group_it_is_read_or_refused_and_no_more(data, profile):
    group = copy.deepcopy(sent(profile, top_k=3))
    for _ in range(data.draw(st.integers(1, 3))):
        _set(data.draw(st.sampled_from(places(group))), data.draw(ODD))(group)
    with suppress(BadGroup):
        found = read(group, vocabulary=VOCABULARY)
        assert all(len(each.mask) == len(each.tokens) for each in found.sequences)
