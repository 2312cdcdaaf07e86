"""Invalid teacher rows cannot be built."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from afterwit.engines.port import TeacherRow
from afterwit.lifecycle import Reason
from tests.fakes.rollouts import a_scored_rollout, rows_of


def test_turns_without_rows_are_counted_by_reason():
    scored = a_scored_rollout(unscored=(0, 2))
    assert scored.unscored == {Reason.NO_SIGNAL: 2}
    assert [turn.turn.id for turn in scored.scored] == ["turn1"]


@pytest.mark.parametrize(
    ("ids", "logprobs", "message"),
    [
        ((), (), "0 ids"),
        ((1, 2), (-1.0,), "2 ids but 1 log-probs"),
        ((1, 1), (-1.0, -2.0), "twice"),
        ((0, 0, 0), (0.0, 0.0, 0.0), "twice"),
        ((1, 2), (-1.0, -math.inf), "not finite"),
        ((1, 2), (math.nan, -1.0), "not finite"),
        ((1,), (1.0,), "not finite"),
        ((1, 2, 3), (-5.0, -2.0, -1.0), "does not fall"),
    ],
)
def test_what_is_no_row_is_refused(ids, logprobs, message):
    with pytest.raises(ValueError, match=message):
        TeacherRow(ids=ids, logprobs=logprobs)


def test_a_row_may_begin_with_an_unlikely_sampled_id():
    assert TeacherRow(ids=(1, 2, 3), logprobs=(-9.0, -1.0, -2.0)).ids[0] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda turn: {"rows": turn.rows[1:]}, "4 ids but 3 rows"),
        (lambda turn: {"rows": turn.rows[::-1]}, "does not begin with the sampled id"),
        (lambda turn: {"chosen": (1,) * 4}, "none of its 1 hints"),
    ],
)
def test_rows_belong_to_the_sampled_tokens_one_for_one(change, message):
    turn = a_scored_rollout().scored[0]
    with pytest.raises(ValueError, match=message):
        replace(turn, **change(turn))


def test_every_turn_of_a_rollout_is_accounted_for():
    scored = a_scored_rollout()
    with pytest.raises(ValueError, match="3 turns is scored with 2"):
        replace(scored, turns=scored.turns[1:])


def test_rows_have_the_width_that_is_asked_for():
    assert {len(row.ids) for row in rows_of(a_scored_rollout().scored[0].turn, k=5)} == {5}
