"""Summaries of side turns, and conversations that quote them."""

from __future__ import annotations

from afterwit.turn import Kind, call_id
from tests.binding.bindings import HELLO, HI, MORE, SURE, Memory, calls, says, talk

SUMMARY = says(
    "assistant", "The user greeted us, we greeted back, and then nothing more was left to do. " * 2
)
SUMMARISE = says("user", "Your task is to create a detailed summary of the conversation so far.")


def test_a_compacted_conversation_stays_in_its_session():
    memory = Memory()
    first = memory.ask(talk(HI), calls("read"))
    result = says("tool", "ok", tool_call_id=call_id(first.id, 0))
    side = memory.ask(talk(HI, first.response, result, SUMMARISE), SUMMARY)
    assert side.kind is Kind.SIDE
    assert first.next_state == (result,), "a tool's result counts in any request"
    quoting = says("user", f"This session is continued from an earlier one.\n{SUMMARY.content}\nGo on.")
    after = memory.ask(talk(quoting), HELLO)
    assert (after.binding.session, after.binding.parent, after.kind) == (first.id, None, Kind.MAIN)
    assert side.next_state == ()
    elsewhere = memory.ask(talk(quoting), HELLO, scope="other/client")
    assert elsewhere.binding.session == elsewhere.id


def test_a_summary_that_ends_in_code_is_found_in_a_message_of_any_role():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    summary = says("assistant", f"<think>hm</think>{SUMMARY.content}\n```\nprint(1)\n```")
    memory.ask(talk(HI, HELLO, SUMMARISE), summary)
    for role in ("user", "assistant"):
        after = memory.ask(talk(says(role, (summary.content or "")[17:]), MORE), SURE)
        assert after.binding.session == first.id


def test_a_short_side_reply_that_is_quoted_proves_nothing():
    memory = Memory()
    memory.ask(talk(SUMMARISE), says("assistant", "Nothing to save."))
    quoting = memory.ask(talk(says("user", "You said: Nothing to save.")), HELLO)
    assert quoting.binding.session == quoting.id


def test_a_side_turn_does_not_take_back_what_the_line_said():
    memory = Memory()
    first = memory.ask(talk(HI), calls("read"))
    result = says("tool", "ok", tool_call_id=call_id(first.id, 0))
    memory.ask(talk(HI, first.response, result, MORE), SURE)
    memory.ask(talk(HI, first.response, result, SUMMARISE), SUMMARY)
    assert first.next_state == (result, MORE)
