"""The tokens of a rollout: spans are where the turns were captured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from afterwit_atropos.rollout import Span, TokenSequence, sequences
from tests.fakes.rollouts import a_rollout
from tests.fakes.turns import a_turn


def test_turns_that_continue_one_another_are_one_sequence_with_every_sampled_id_in_a_span():
    rollout = a_rollout(3)
    (sequence,) = rollout.sequences
    last = rollout.in_order[-1]
    assert sequence.ids == last.prompt_ids + last.sampled.ids
    assert [(span.begin, span.end) for span in sequence.spans] == [(7, 11), (16, 20), (25, 29)]
    sampled = [token for token, inside in zip(sequence.ids, sequence.mask, strict=True) if inside]
    assert sampled == [token for turn in rollout.in_order for token in turn.sampled.ids]


def test_a_response_that_was_said_before_is_found_where_it_was_captured():
    first = a_turn("a", prompt_ids=(1,))
    ids = first.sampled.ids
    again = a_turn("b", prompt_ids=(1, *ids, *ids, 9))
    (sequence,) = sequences([first, again])
    assert [(span.begin, span.end) for span in sequence.spans] == [(1, 3), (6, 8)]
    assert sequence.mask == (False, True, True, False, False, False, True, True)


def test_log_probs_are_absent_where_nothing_was_sampled_or_a_token_was_forced():
    turn = a_turn("a")
    forced = replace(turn.sampled, forced=(True, False))
    (sequence,) = sequences([replace(turn, sampled=forced)])
    assert sequence.logprobs == (None, None, None, None, -0.25)
    assert sequence.mask == (False, False, False, False, True)


def test_a_prompt_that_rewrites_what_was_said_begins_another_sequence():
    first, second = a_turn("a"), a_turn("b", prompt_ids=(1, 2, 3, 7, 8))
    assert [sequence.ids for sequence in sequences([first, second])] == [
        (1, 2, 3, 4, 5),
        (1, 2, 3, 7, 8, 4, 5),
    ]


def test_no_turns_are_no_sequence():
    assert sequences([]) == ()


@pytest.mark.parametrize(
    ("ids", "begin", "message"),
    [
        ((1, 2, 3, 4, 5), 2, "after another prompt"),
        ((1, 2, 3, 4, 6), 3, "other ids"),
    ],
)
def test_a_sequence_whose_spans_are_not_what_was_sampled_cannot_be_built(ids, begin, message):
    with pytest.raises(ValueError, match=message):
        TokenSequence(ids=ids, spans=(Span(turn=a_turn("a"), begin=begin, end=begin + 2),))


def test_spans_do_not_overlap():
    turn = a_turn("a")
    with pytest.raises(ValueError, match="before 5"):
        TokenSequence(ids=(1, 2, 3, 4, 5), spans=(Span(turn=turn, begin=3, end=5),) * 2)


def test_a_span_is_as_long_as_the_response():
    with pytest.raises(ValueError, match="2 ids, but a span of 3"):
        Span(turn=a_turn("a"), begin=3, end=6)
