"""The same prompt again: a retry, a regeneration, another conversation."""

from __future__ import annotations

from afterwit.turn import Kind
from tests.binding.bindings import HELLO, HI, MORE, SURE, Memory, says, talk, tree


def test_the_same_prompt_after_a_cut_answer_is_a_retry():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    cut = memory.ask(talk(HI, HELLO, MORE), says("assistant", "Su"), delivered=False)
    again = memory.ask(talk(HI, HELLO, MORE), SURE)
    third = memory.ask(talk(HI, HELLO, MORE, SURE, HI), HELLO)
    assert again.binding.retry_of == cut.id
    assert cut.superseded
    assert tree([first, again, third]) == [("main", None, 0), ("main", 0, 0), ("main", 1, 0)]
    assert first.next_state == (MORE,)


def test_a_first_prompt_can_be_retried_too():
    memory = Memory()
    cut = memory.ask(talk(HI), says("assistant", "He"), delivered=False)
    again = memory.ask(talk(HI), HELLO)
    assert (again.binding.retry_of, again.binding.session) == (cut.id, cut.id)
    assert memory.ask(talk(HI), HELLO).binding.retry_of is None, "the retry was delivered"


def test_an_answer_that_the_conversation_went_on_from_had_arrived():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO, delivered=False)
    memory.ask(talk(HI, HELLO, MORE), SURE)
    assert memory.ask(talk(HI), SURE).binding.retry_of is None
    assert not first.superseded


def test_a_first_prompt_asked_again_after_its_answer_is_another_conversation():
    memory = Memory()
    rows = [memory.ask(talk(HI), HELLO), memory.ask(talk(HI), SURE)]
    rows.append(memory.ask(talk(HI, HELLO, MORE), SURE))
    rows.append(memory.ask(talk(HI, SURE, MORE), HELLO))
    assert tree(rows) == [("main", None, 0), ("main", None, 1), ("main", 0, 0), ("main", 1, 1)]


def test_of_two_regenerations_the_one_that_goes_on_is_the_conversation():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    dropped = memory.ask(talk(HI, HELLO, MORE), SURE)
    kept = memory.ask(talk(HI, HELLO, MORE), says("assistant", "Here is more."))
    assert kept.binding.parent == dropped.binding.parent == first.id
    assert (dropped.kind, kept.kind) == (Kind.UNKNOWN, Kind.UNKNOWN)
    after = memory.ask(talk(HI, HELLO, MORE, kept.response, HI), HELLO)
    assert (dropped.kind, kept.kind, after.kind) == (Kind.UNKNOWN, Kind.MAIN, Kind.MAIN)
    assert (first.next_state, kept.next_state) == ((MORE,), (HI,))


def test_several_choices_wait_until_one_goes_on():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    prompt = talk(HI, HELLO, MORE)
    one, two = (memory.ask(prompt, says("assistant", text)) for text in ("One.", "Two."))
    memory.ask(talk(*prompt.messages, two.response, HI), HELLO)
    assert (one.kind, two.kind) == (Kind.UNKNOWN, Kind.MAIN)
    assert (first.next_state, one.next_state, two.next_state) == ((MORE,), (), (HI,))
