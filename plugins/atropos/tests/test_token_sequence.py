"""The tokens of a rollout: turns are noted where they were captured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from afterwit.lifecycle import Reason
from afterwit.turn import Turn
from afterwit_atropos.group import BadGroup, ScoredSequence, SequenceNotes, TurnNotes, group_of
from afterwit_atropos.rollout import Rollout, ScoredRollout, Unscored
from tests.fakes.rollouts import a_rollout
from tests.fakes.turns import a_turn


def sequences(turns: Sequence[Turn]) -> tuple[ScoredSequence, ...]:
    unscored = tuple(Unscored(turn=turn, reason=Reason.NO_SIGNAL) for turn in turns)
    rollout = Rollout(
        messages=tuple(turn.message for turn in turns), turns=dict(enumerate(turns)), outcome=None
    )
    return group_of([ScoredRollout(rollout=rollout, turns=unscored, teacher="live")], [1.0]).sequences


def places(sequence: ScoredSequence) -> list[tuple[int, int]]:
    assert sequence.notes is not None
    return [(turn.begin, turn.end) for turn in sequence.notes.turns]


def test_turns_that_continue_one_another_are_one_sequence_with_every_sampled_id_in_its_place():
    turns = a_rollout(3).in_order
    (sequence,) = sequences(turns)
    assert sequence.tokens == turns[-1].prompt_ids + turns[-1].sampled.ids
    assert places(sequence) == [(7, 11), (16, 20), (25, 29)]
    sampled = [token for token, inside in zip(sequence.tokens, sequence.mask, strict=True) if inside]
    assert sampled == [token for turn in turns for token in turn.sampled.ids]


def test_a_response_that_was_said_before_is_found_where_it_was_captured():
    first = a_turn("a", prompt_ids=(1,))
    ids = first.sampled.ids
    again = a_turn("b", prompt_ids=(1, *ids, *ids, 9))
    (sequence,) = sequences([first, again])
    assert places(sequence) == [(1, 3), (6, 8)]
    assert sequence.mask == (False, True, True, False, False, False, True, True)


def test_log_probs_are_absent_where_nothing_was_sampled_or_a_token_was_forced():
    turn = a_turn("a")
    forced = replace(turn.sampled, forced=(True, False))
    (sequence,) = sequences([replace(turn, sampled=forced)])
    assert sequence.logprobs == (None, None, None, None, -0.25)
    assert sequence.mask == (False, False, False, False, True)


def test_a_prompt_that_rewrites_what_was_said_begins_another_sequence():
    first, second = a_turn("a"), a_turn("b", prompt_ids=(1, 2, 3, 7, 8))
    assert [sequence.tokens for sequence in sequences([first, second])] == [
        (1, 2, 3, 4, 5),
        (1, 2, 3, 7, 8, 4, 5),
    ]


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        (((3, 5), (4, 6)), r"a turn at \[4, 6\) after one that ends at 5"),
        (((3, 3),), r"a turn at \[3, 3\)"),
    ],
)
def test_turns_of_a_sequence_do_not_overlap_and_have_ids(turns: tuple[tuple[int, int], ...], message: str):
    with pytest.raises(ValueError, match=message):
        SequenceNotes(turns=tuple(TurnNotes(begin=begin, end=end, version=0) for begin, end in turns))


def test_a_turn_ends_within_its_sequence():
    (sequence,) = sequences([a_turn("a")])
    with pytest.raises(BadGroup, match="a turn ends at 9, its sequence at 5"):
        replace(sequence, notes=SequenceNotes(turns=(TurnNotes(begin=3, end=9, version=0),)))


def test_a_sequence_has_tokens_with_a_mask_for_each():
    (sequence,) = sequences([a_turn("a")])
    with pytest.raises(BadGroup, match="5 tokens but 4 mask"):
        replace(sequence, mask=sequence.mask[1:])
    with pytest.raises(BadGroup, match="without tokens"):
        replace(sequence, tokens=())
