"""Responses worth imitating, and pairs of a better and a worse one."""

from __future__ import annotations

from typing import Any

import pytest

from afterwit.exporting.examples import LeftOut
from afterwit.exporting.formats import FORMATS
from afterwit.turn import Conversation, Finish, Kind, Message, RecordedTurn
from tests.exporting.examples import HINT, TOOL, an_example, asked, said

IMPORTED = RecordedTurn(
    id="i",
    scope="imported",
    session="s",
    parent=None,
    kind=Kind.MAIN,
    created=0.0,
    model="unknown",
    conversation=asked("Open it."),
    message=said("Opened."),
    finish=Finish.STOP,
)


def rows(format: str, *examples: Any) -> list[Any]:
    return list(FORMATS[format](examples))


def test_a_good_response_is_imitated_and_a_bad_one_alone_is_not() -> None:
    good, bad = an_example("g", 1), an_example("b", -1, hint=HINT, conversation=asked("Close it."))
    row, left = rows("sft", good, bad)
    assert (row["kind"], row["completion"]) == ("good", [said("response of g").to_dict()])
    assert left == LeftOut(turn="b", reason="no_better_response")
    assert rows("dpo", good, bad)[0] == LeftOut(turn="g", reason="no_worse_response")


def test_the_response_after_a_correction_is_better_than_the_one_before() -> None:
    wrong = an_example("w", -1, hint=HINT)
    right = an_example("r", 1, parent="w", conversation=asked("Open it. Not that one."))
    (pair, _) = rows("dpo", wrong, right)
    assert pair["kind"] == "corrected"
    assert pair["prompt"] == [{"role": "user", "content": "Open it."}]
    assert pair["chosen"] == [said("response of r").to_dict()]
    assert pair["rejected"] == [said("response of w").to_dict()]
    assert (pair["chosen_turn"], pair["rejected_turn"]) == ("r", "w")
    assert pair["hint"] == HINT
    assert pair["hinted_prompt"][-1]["content"].endswith(HINT)


def test_a_response_that_rests_on_a_tools_answer_is_none_to_the_earlier_prompt() -> None:
    wrong = an_example("w", -1, next_state=TOOL)
    right = an_example("r", 1, parent="w", conversation=asked("later"))
    assert rows("sft", wrong, right)[0] == LeftOut(turn="w", reason="no_better_response")


def test_two_responses_to_one_prompt_are_a_pair() -> None:
    bad, good = an_example("b", -1), an_example("g", 1)
    left, pair = rows("dpo", bad, good)
    assert left == LeftOut(turn="b", reason="no_better_response")
    assert (pair["kind"], pair["chosen_turn"], pair["rejected_turn"]) == ("good", "g", "b")


def test_an_imported_conversation_has_no_samples_but_can_be_imitated() -> None:
    example = an_example("i", 1, turn=IMPORTED)
    assert rows("trl", example) == [LeftOut(turn="i", reason="not_sampled_here")]
    (row,) = rows("sft", example)
    assert row["sampled"] == [said("Opened.").to_dict()]


def test_openpipe_weighs_the_last_response_alone_and_keeps_a_session_on_one_side() -> None:
    tools = ({"type": "function", "function": {"name": "open", "parameters": {}}},)
    messages = (
        Message(role="user", content="Open it."),
        said("Which?"),
        Message(role="user", content="The first."),
    )
    conversation = Conversation(messages=messages, tools=tools)
    bad, good = an_example("b", -1, conversation=conversation), an_example("g", 1, conversation=conversation)
    row = rows("openpipe", bad, good)[1]
    assert [message.get("weight") for message in row["messages"]] == [None, 0, None, 1]
    assert row["tools"] == [dict(tool) for tool in tools]
    assert row["rejected_message"] == said("response of b").to_dict()
    assert row["metadata"]["turn"] == "g"
    plain = rows("openpipe", an_example("p", 1))[0]
    assert plain.keys() == {"messages", "split", "metadata"}


@pytest.mark.parametrize("shared", ["one", "two"])
def test_all_of_a_session_has_one_split(shared: str) -> None:
    found = rows("openpipe", *(an_example(str(index), 1, session=shared) for index in range(5)))
    assert len({row["split"] for row in found}) == 1


def test_about_a_tenth_of_the_sessions_is_held_out() -> None:
    found = rows("openpipe", *(an_example(str(index), 1, session=str(index)) for index in range(300)))
    held_out = sum(row["split"] == "TEST" for row in found)
    assert 15 <= held_out <= 45
