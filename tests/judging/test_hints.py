"""The choice of hints, and how one is put into a prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.judging.hinted_prompts import Placement, splice
from afterwit.judging.voting import select_candidates
from afterwit.turn import Conversation, Message, ToolCall

SYSTEM = Message(role="system", content="Be brief.")
ASKED = Message(role="user", content="Fix the test.")
CALLED = Message(role="assistant", tool_calls=(ToolCall(id="a", name="run", arguments="{}"),))
RESULT = Message(role="tool", content="1 failed", tool_call_id="a")
TOOLS = ({"type": "function", "function": {"name": "run"}},)
HINT = "Read the test first."
PUT = "\n\n[user's hint / instruction]\nRead the test first."


def conversation(*messages: Message) -> Conversation:
    return Conversation(messages=messages, tools=TOOLS, template_args={"enable_thinking": False})


def test_a_hint_goes_to_the_end_of_the_last_user_message():
    plain = conversation(SYSTEM, ASKED, CALLED, RESULT)
    hinted = splice(plain, HINT)
    assert hinted.messages[1] == Message(role="user", content="Fix the test." + PUT)
    assert (hinted.messages[0], *hinted.messages[2:]) == (SYSTEM, CALLED, RESULT)
    assert (hinted.tools, hinted.template_args) == (plain.tools, plain.template_args)


def test_only_the_last_of_several_user_messages_changes():
    hinted = splice(conversation(ASKED, ASKED), HINT)
    assert [message.content for message in hinted.messages] == ["Fix the test.", "Fix the test." + PUT]


def test_without_a_user_the_last_message_takes_the_hint():
    assert splice(conversation(SYSTEM, RESULT), HINT).messages[-1].content == "1 failed" + PUT


def test_a_message_without_text_takes_the_hint_alone():
    said = splice(conversation(CALLED), HINT).messages[0]
    assert (said.content, said.tool_calls) == (PUT.strip(), CALLED.tool_calls)


def test_the_whole_text_is_stripped():
    said = splice(conversation(Message(role="user", content="  Fix it. ")), "Read it first. \n").messages[0]
    assert said.content == "Fix it. \n\n[user's hint / instruction]\nRead it first."


def test_a_hint_at_the_end_leaves_the_whole_prompt_as_its_prefix():
    plain = conversation(SYSTEM, ASKED, CALLED, RESULT)
    hinted = splice(plain, HINT, Placement.END)
    assert hinted.messages[:-1] == plain.messages
    assert hinted.messages[-1] == Message(role="user", content=PUT.strip())


@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize("hint", ["", "  \n"])
def test_an_empty_hint_leaves_the_conversation_untouched(placement, hint):
    plain = conversation(SYSTEM, Message(role="user", content="  spaced  "))
    assert splice(plain, hint, placement) is plain


def test_candidates_are_distinct_and_sorted_by_length_with_ties_in_their_order():
    hints = ["ccc", "b", "aa", "ccc", "zz"]
    assert select_candidates(hints, max_candidates=9, longest=False) == ("b", "aa", "zz", "ccc")
    assert select_candidates(hints, max_candidates=2, longest=False) == ("b", "aa")


def test_longest_chooses_before_the_cap_and_the_first_of_equal_ones():
    hints = ["a", "bb", "ccc", "dddd", "eeee"]
    assert select_candidates(hints, max_candidates=1, longest=True) == ("dddd",)
    assert select_candidates([], max_candidates=1, longest=True) == ()


hint_lists = st.lists(st.text(alphabet="ab", max_size=6), max_size=12)


@given(hint_lists, st.integers(1, 5))
def test_a_selection_is_the_shortest_distinct_hints(hints, cap):
    kept = select_candidates(hints, max_candidates=cap, longest=False)
    left = set(hints) - set(kept)
    assert len(kept) == min(cap, len(set(hints))) == len(set(kept))
    assert list(kept) == sorted(kept, key=len)
    assert all(len(one) >= len(kept[-1]) for one in left)


@given(hint_lists, st.integers(1, 5))
def test_selecting_from_a_selection_changes_nothing(hints, cap):
    for longest in (False, True):
        kept = select_candidates(hints, max_candidates=cap, longest=longest)
        assert select_candidates(kept, max_candidates=cap, longest=longest) == kept


@given(hint_lists)
def test_the_longest_is_one_of_the_longest_of_all(hints):
    kept = select_candidates(hints, max_candidates=1, longest=True)
    assert [len(one) for one in kept] == ([max(map(len, hints))] if hints else [])
