"""A client that sends back what was asked and answered, and leaves out the calls between."""

from __future__ import annotations

import pytest

from afterwit.turn import Kind, Message
from tests.binding.bindings import MORE, SURE, Memory, Row, calls, says, talk

SYSTEM = says("system", "You know these files.")
ASKED = says("user", "Which of the files here is the longest?")
LONGEST_ONE = says("assistant", "The longest of them is notes.txt.")


def looked_up(memory: Memory, asked: Message, reply: Message = LONGEST_ONE) -> Row:
    """A conversation of one question, whose answer took a call."""
    call = memory.ask(talk(SYSTEM, asked), calls("run", content="I look."))
    result = says("tool", "notes.txt", tool_call_id=call.response.tool_calls[0].id)
    return memory.ask(talk(SYSTEM, asked, call.response, result), reply)


@pytest.mark.parametrize("around", ["{}", "Use these pages.\n\nQuestion: {}", "{}\n\nAnswer in one line."])
def test_a_client_that_keeps_only_what_was_asked_and_answered_stays_in_its_session(around: str):
    memory = Memory()
    answer = looked_up(memory, says("user", around.format(ASKED.content)))
    row = memory.ask(talk(SYSTEM, ASKED, LONGEST_ONE, MORE), SURE)
    assert (row.binding.parent, row.kind) == (answer.id, Kind.MAIN)
    assert answer.said == (MORE.content,)


@pytest.mark.parametrize(
    "joined",
    [
        "I look.\n{}",
        'I look.\n"&quot;notes.txt&quot;"\n{}',
        '<details type="tool_calls" id="{id}" result="notes.txt">\n<summary>Done</summary>\n</details>\n{}',
    ],
)
def test_a_client_that_joins_what_was_said_between_two_questions_stays_in_its_session(joined: str):
    memory = Memory()
    answer = looked_up(memory, ASKED)
    call = memory.rows[0]
    words = joined.replace("{id}", call.response.tool_calls[0].id).format(LONGEST_ONE.content)
    row = memory.ask(talk(SYSTEM, ASKED, says("assistant", words), MORE), SURE)
    assert (row.binding.parent, row.kind) == (answer.id, Kind.MAIN)
    assert (call.said, answer.said) == (("notes.txt",), (MORE.content,))


def test_words_that_end_as_a_short_answer_does_prove_nothing():
    memory = Memory()
    looked_up(memory, ASKED, says("assistant", "notes.txt."))
    other = says("assistant", "Of course it is notes.txt.")
    assert memory.ask(talk(SYSTEM, ASKED, other, MORE), SURE).binding.parent is None


def test_the_same_question_and_answer_of_two_sessions_do_not_tell_which_goes_on():
    memory = Memory()
    for _ in range(2):
        looked_up(memory, ASKED)
    assert memory.ask(talk(SYSTEM, ASKED, LONGEST_ONE, MORE), SURE).binding.parent is None


def test_another_question_with_the_same_answer_goes_on_in_no_session():
    memory = Memory()
    looked_up(memory, ASKED)
    other = says("user", "Which file do I need to read first?")
    assert memory.ask(talk(SYSTEM, other, LONGEST_ONE, MORE), SURE).binding.parent is None


def test_a_short_word_of_the_person_is_enough_if_the_words_before_it_are_the_same():
    memory, yes, done = Memory(), says("user", "yes"), says("assistant", "Done.")
    looked_up(memory, ASKED)
    call = memory.ask(talk(SYSTEM, ASKED, LONGEST_ONE, yes), calls("run"))
    result = says("tool", "ok", tool_call_id=call.response.tool_calls[0].id)
    answer = memory.ask(talk(SYSTEM, ASKED, LONGEST_ONE, yes, call.response, result), done)
    row = memory.ask(talk(SYSTEM, ASKED, LONGEST_ONE, yes, done, MORE), SURE)
    assert row.binding.parent == answer.id


@pytest.mark.parametrize("around", ["[Workspace: /home/me]\n{}", "<query>{}</query>", "{}\n\n[Monday, 9:00]"])
def test_a_client_that_wraps_each_question_while_it_is_the_last_stays_in_its_session(around: str):
    def wrapped(asked: Message) -> Message:
        return says("user", around.format(asked.content))

    memory, brief = Memory(), says("user", "Shorter")
    first = memory.ask(talk(SYSTEM, wrapped(ASKED)), LONGEST_ONE)
    second = memory.ask(talk(SYSTEM, ASKED, LONGEST_ONE, wrapped(brief)), says("assistant", "notes.txt."))
    third = memory.ask(talk(SYSTEM, ASKED, LONGEST_ONE, brief, second.response, wrapped(MORE)), SURE)
    assert (second.binding.parent, third.binding.parent) == (first.id, second.id)
    assert (first.next_state, second.next_state) == ((wrapped(brief),), (wrapped(MORE),))


def test_letters_within_a_word_of_a_question_are_no_wrapped_question():
    memory, answer = Memory(), says("assistant", "The longest of the files here is notes.txt.")
    known = memory.ask(talk(SYSTEM, says("user", "Foreshorten it")), answer)
    row = memory.ask(talk(SYSTEM, says("user", "shorten"), answer, MORE), SURE)
    assert (row.binding.parent, known.next_state) == (None, ())
