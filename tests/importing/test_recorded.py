"""Files of conversations that other programs recorded."""

from __future__ import annotations

import json
from typing import Any

from afterwit.importing.importing import BadLine, Recording, read
from tests.timing import check_linear

USER = {"role": "user", "content": "Open it."}
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "milk"}
ANSWER = {"role": "assistant", "content": "It says milk."}
THANKS = {"role": "user", "content": "Thanks."}


def lines(*objects: Any) -> list[bytes]:
    return [json.dumps(each).encode() + b"\n" for each in objects]


def record(before: list[Any], said: str, following: Any, **more: Any) -> dict[str, Any]:
    """As OpenClaw-RL writes one."""
    fields = {"session_id": "s", "turn": 1, "timestamp": "2026-01-01 00:00:00", "messages": before}
    fields |= {"prompt_text": "<|im_start|>...", "response_text": said, "tool_calls": None}
    return fields | {"next_state": following} | more


def test_a_line_of_messages_is_a_conversation_of_all_its_responses() -> None:
    (found,) = read(lines({"messages": [USER, CALLED, RESULT, ANSWER], "model": "theirs"}))
    assert isinstance(found, Recording)
    assert (found.responses, found.model) == ((1, 3), "theirs")
    assert found.messages[1].tool_calls[0].name == "read"


def test_a_bad_line_is_named_and_the_others_are_read() -> None:
    bad = [b"{\n", *lines(7, {"messages": [{"role": "ghost"}]}, {"messages": [USER]}, {"score": 1})]
    found = list(read([*bad, b"\n", *lines({"messages": [USER, ANSWER]})]))
    reasons = [each for each in found if isinstance(each, BadLine)]
    assert [each.number for each in reasons] == [1, 2, 3, 4, 5]
    words = ("not valid JSON", "an object", "messages[0].role", "assistant", "the line has no messages")
    for each, expected in zip(reasons, words, strict=True):
        assert expected in each.reason
    assert isinstance(found[-1], Recording)


def test_the_records_of_an_openclaw_rl_session_are_one_conversation() -> None:
    first = record(
        [USER],
        "<think>\nLook.\n</think>\n\n<tool_call>\n{...}\n</tool_call><|im_end|>\n",
        RESULT,
        tool_calls=[CALL],
    )
    second = record([USER, CALLED, RESULT], "It says milk.<|im_end|>", THANKS)
    (found,) = read(lines(first, second))
    assert isinstance(found, Recording)
    assert found.responses == (1, 3)
    call, answer = found.messages[1], found.messages[3]
    assert (call.content, call.reasoning) == ("", "Look.")
    assert call.tool_calls[0].id == "c1"
    assert (answer.content, found.messages[4].content) == ("It says milk.", "Thanks.")


def test_a_record_that_does_not_go_on_from_the_last_begins_a_conversation() -> None:
    other = {"role": "user", "content": "Something else."}
    asked = (([USER], "Done.", None), ([other], "Yes.", None), ([USER], "No.", THANKS))
    found = list(read(lines(*(record(*each) for each in asked))))
    assert [each.messages[0].content for each in found if isinstance(each, Recording)] == [
        "Open it.",
        "Something else.",
        "Open it.",
    ]


def test_sessions_may_be_mixed_in_the_file() -> None:
    mine = record([USER], "Done.", THANKS)
    theirs = record([USER], "Yes.", THANKS, session_id="other")
    more = record([USER, ANSWER, THANKS], "Welcome.", None)
    found = list(read(lines(mine, theirs, more)))
    assert sorted(len(each.responses) for each in found if isinstance(each, Recording)) == [1, 2]


def test_a_byte_order_mark_before_the_first_line_is_left_out():
    first, second = lines({"messages": [USER, ANSWER]}, {"messages": [USER, ANSWER]})
    found = list(read([b"\xef\xbb\xbf" + first, b"\xef\xbb\xbf" + second]))
    assert [type(one) for one in found] == [Recording, BadLine]


def test_calls_without_an_end_take_time_in_proportion_to_their_length() -> None:
    def given(size: int) -> list[bytes]:
        return lines(record([USER], "<tool_call>" * size, RESULT, tool_calls=[CALL]))

    check_linear(lambda line: list(read(line)), given, 2_000)


def test_white_space_before_no_thought_takes_time_in_proportion_to_its_length() -> None:
    def begun(spaces: int) -> list[bytes]:
        return lines(record([USER], " " * spaces + "Hi.", None))

    check_linear(lambda given: list(read(given)), begun, 1_000)
