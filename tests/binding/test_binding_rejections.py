"""Replies that a client takes out or edits."""

from __future__ import annotations

import pytest

from afterwit.turn import Kind
from tests.binding.bindings import HELLO, HI, MORE, SURE, Memory, calls, says, talk


def test_an_edited_message_becomes_the_next_state_once_its_branch_goes_on():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    edited = says("user", "No, the other one")
    memory.ask(talk(HI, HELLO, MORE), SURE)
    branch = memory.ask(talk(HI, HELLO, edited), SURE)
    assert first.next_state == (MORE,)
    memory.ask(talk(HI, HELLO, edited, SURE, HI), HELLO)
    assert branch.kind is Kind.MAIN
    assert first.next_state == (edited,)


def test_a_second_child_beside_a_line_that_went_on_is_unknown():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    main = memory.ask(talk(HI, HELLO, MORE), SURE)
    memory.ask(talk(HI, HELLO, MORE, SURE, HI), HELLO)
    beside = memory.ask(talk(HI, HELLO, says("user", "Rate this conversation")), SURE)
    assert (main.kind, beside.kind) == (Kind.MAIN, Kind.UNKNOWN)
    assert first.next_state == (MORE,)


def test_a_deleted_reply_is_answered_by_the_complaint():
    memory = Memory()
    complaint = says("user", "Every response MUST include a tool call.")
    rejected = memory.ask(talk(HI), HELLO)
    after = memory.ask(talk(HI, complaint), calls("read"))
    assert after.binding.rejects == rejected.id
    assert rejected.next_state == (complaint,)
    assert (rejected.kind, after.kind) == (Kind.MAIN, Kind.MAIN)
    assert after.binding.session == rejected.binding.session


def test_what_a_person_says_to_a_response_that_they_stopped_answers_nobody():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    stopped = memory.ask(talk(HI, HELLO, MORE), SURE, delivered=False)
    after = memory.ask(talk(HI, HELLO, MORE, says("user", "Stop, that is wrong.")), SURE)
    assert (after.binding.parent, after.kind) == (first.id, Kind.MAIN)
    assert (first.next_state, stopped.next_state) == ((MORE,), ())


def test_an_edited_reply_is_answered_by_nobody():
    memory = Memory()
    edited = memory.ask(talk(HI), HELLO)
    after = memory.ask(talk(HI, says("assistant", "Something else"), MORE), SURE)
    assert after.binding.parent is None
    assert edited.next_state == ()


def test_a_reply_whose_conversation_went_on_was_not_rejected():
    memory = Memory()
    went_on = memory.ask(talk(HI), HELLO)
    memory.ask(talk(HI, HELLO, MORE), SURE)
    other = memory.ask(talk(HI, MORE), SURE)
    assert other.binding.rejects is None
    assert went_on.next_state == (MORE,)


def test_an_empty_response_is_not_rejected_by_its_absence():
    memory = Memory()
    empty = memory.ask(talk(HI), says("assistant", ""))
    after = memory.ask(talk(HI, MORE), SURE)
    assert (after.binding.rejects, after.binding.parent) == (None, empty.id)
    assert empty.next_state == (MORE,)


STORY = says("assistant", "Ann: Once there was a *dragon in a cafe\u0301. It was tired. And the la")


@pytest.mark.parametrize(
    "kept",
    [
        "Ann: Once there was a *dragon in a cafe\u0301. It was tired.",
        "Ann: Once there was a *dragon* in a caf\u00e9. It was tired. And the la",
        "Once there was a *dragon* in a caf\u00e9.\n\nIt was tired.",
    ],
)
def test_a_reply_of_which_a_client_changed_only_the_form_is_answered(kept: str):
    memory = Memory()
    told = memory.ask(talk(HI), STORY)
    after = memory.ask(talk(HI, says("assistant", kept), MORE), SURE)
    assert (after.binding.parent, after.kind) == (told.id, Kind.MAIN)
    assert told.next_state == (MORE,)


@pytest.mark.parametrize("kept", ["Once there was a *dragon in a cafe\u0301.", "Once there was a lion.", "O"])
def test_a_reply_that_lost_a_sentence_or_a_word_is_answered_by_nobody(kept: str):
    memory = Memory()
    told = memory.ask(talk(HI), STORY)
    after = memory.ask(talk(HI, says("assistant", kept), MORE), SURE)
    assert (after.binding.parent, told.next_state) == (None, ())


def test_a_reply_that_a_client_goes_on_from_is_answered_under_its_continuation():
    memory = Memory()
    begun = memory.ask(talk(HI), STORY)
    rest = memory.ask(talk(HI, STORY), says("assistant", "nd was dry, so it flew away."))
    whole = says("assistant", f"{STORY.content}{rest.response.content}")
    after = memory.ask(talk(HI, whole, MORE), SURE)
    assert (after.binding.parent, after.binding.session) == (rest.id, begun.id)
    assert (begun.next_state, rest.next_state) == ((), (MORE,))


def test_what_the_system_asked_for_between_two_messages_of_a_person_was_not_rejected():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    aside = memory.ask(talk(HI, HELLO, says("system", "Describe the scene in ten words.")), SURE)
    after = memory.ask(talk(HI, HELLO, MORE), SURE)
    assert (after.binding.parent, after.binding.rejects) == (first.id, None)
    memory.ask(talk(HI, HELLO, MORE, SURE, HI), SURE)
    assert (first.next_state, aside.next_state, aside.kind) == ((MORE,), (), Kind.UNKNOWN)
    assert (after.kind, after.next_state) == (Kind.MAIN, (HI,))


@pytest.mark.parametrize("told", ["{}", "For context:\n[writer] said: {}"])
def test_a_reply_that_another_agent_is_told_was_not_rejected(told: str):
    memory = Memory()
    writer, critic = says("system", "You are the writer."), says("system", "You are the critic.")
    poem, criticism = (
        says("assistant", "The sea is wide and blue, and never still."),
        says("assistant", "It is too short."),
    )
    written = memory.ask(talk(writer, HI, HI), poem)
    judged = memory.ask(talk(critic, HI, HI, says("user", told.format(poem.content))), criticism)
    assert (written.next_state, judged.binding.session) == ((), judged.id)
    answer = says("user", told.format(criticism.content))
    editor = talk(says("system", "You are the editor."), HI, HI, judged.conversation.messages[-1], answer)
    edited = memory.ask(editor, SURE)
    assert (judged.next_state, edited.binding.session) == ((), edited.id)
    memory.ask(talk(writer, HI, HI, poem, answer), SURE)
    assert written.next_state == (answer,)
