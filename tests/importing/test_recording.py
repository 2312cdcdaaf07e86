"""Conversations that were recorded elsewhere, as turns."""

from __future__ import annotations

from typing import Any

import pytest

from afterwit.importing.importing import Recording, steps_of
from afterwit.lifecycle import Reason
from afterwit.turn import Finish, Message, ToolCall
from afterwit.verdict import Reads, Source, Verdict, unjudged, untrainable

CALL = ToolCall(id="c1", name="read", arguments='{"path": "a"}')
MESSAGES = (
    Message(role="user", content="Open it."),
    Message(role="assistant", tool_calls=(CALL,)),
    Message(role="tool", content="milk", tool_call_id="c1"),
    Message(role="assistant", content="It says milk."),
    Message(role="user", content="Thanks."),
)
RECORDING = Recording(messages=MESSAGES, responses=(1, 3))


def test_each_response_is_a_turn_that_the_next_one_follows() -> None:
    (call, after_call), (answer, after_answer) = steps_of(RECORDING, now=7.0)
    assert (call.parent, answer.parent) == (None, call.id)
    assert call.session == answer.session == call.id
    assert (call.finish, answer.finish) == (Finish.TOOL_CALLS, Finish.STOP)
    assert (after_call, after_answer) == (MESSAGES[2:3], MESSAGES[4:])
    assert answer.conversation.messages == MESSAGES[:3]


def test_what_the_system_alone_told_behind_a_response_came_of_it() -> None:
    ran, asked = Message(role="system", content="Ran it: milk"), MESSAGES[0]
    told = Recording(messages=(asked, MESSAGES[3], ran), responses=(1,))
    reminded = Recording(messages=(asked, MESSAGES[3], ran, MESSAGES[4]), responses=(1,))
    assert steps_of(told, now=0.0)[0][1] == (Message(role="tool", content="Ran it: milk"),)
    assert steps_of(reminded, now=0.0)[0][1] == (MESSAGES[4],)


def test_the_same_recording_has_the_same_ids_at_any_time() -> None:
    first, second = steps_of(RECORDING, now=1.0), steps_of(RECORDING, now=2.0)
    assert [turn.id for turn, _ in first] == [turn.id for turn, _ in second]


def test_conversations_that_only_begin_alike_are_two_sessions() -> None:
    other = (*MESSAGES[:2], Message(role="tool", content="honey", tool_call_id="c1"), *MESSAGES[3:])
    ours = steps_of(RECORDING, now=0.0)
    theirs = steps_of(Recording(messages=other, responses=(1, 3)), now=0.0)
    assert {turn.id for turn, _ in ours}.isdisjoint(turn.id for turn, _ in theirs)


def test_an_imported_turn_is_judged_and_ends_because_it_was_not_sampled() -> None:
    turn = steps_of(RECORDING, now=0.0)[0][0]
    praised = Verdict(reward=1, source=Source.VOTES, hints=("Do it again.",))
    assert unjudged(turn) is None
    assert untrainable(turn) is Reads().of(turn, praised).reason is Reason.NOT_SAMPLED_HERE


@pytest.mark.parametrize(
    ("responses", "words"),
    [((), "no message"), ((5,), "of 5 messages"), ((0,), "at index 0"), ((2,), "tool")],
)
def test_a_recording_names_only_responses(responses: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Recording(messages=MESSAGES, responses=responses)


class CountedMessage(Message):
    """How often a message is written out."""

    written = 0

    def to_dict(self) -> dict[str, Any]:
        CountedMessage.written += 1
        return super().to_dict()


def test_a_message_is_written_out_once_however_many_responses_follow_it() -> None:
    messages = [CountedMessage(role=role, content="Go on.") for role in ("user", "assistant")] * 50
    recording = Recording(messages=tuple(messages), responses=tuple(range(1, 100, 2)))
    steps_of(recording, now=0.0)
    assert CountedMessage.written < 2 * len(messages)


def test_the_ids_of_earlier_imports_stay_the_same() -> None:
    assert [turn.id for turn, _ in steps_of(RECORDING, now=0.0)] == [
        "3z9hzhevkfte6nqqthmcg7fmda",
        "725fsvpke0g07gtbmy2wqr27m4",
    ]
