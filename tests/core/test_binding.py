"""Which turn a request follows, and what it says about it."""

from __future__ import annotations

from dataclasses import replace

from afterwit.core.binding import added_messages
from afterwit.core.ids import call_id, turn_id
from afterwit.core.message import Conversation
from afterwit.core.turn import Kind
from tests.core.bindings import HELLO, HI, MORE, SURE, Memory, calls, says, talk, tree
from tests.fakes.turns import a_turn


def test_a_reply_is_the_next_state_of_the_turn_it_follows():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    second = memory.ask(talk(HI, HELLO, MORE), SURE)
    assert tree([first, second]) == [("main", None, 0), ("main", 0, 0)]
    assert first.next_state == (MORE,)


def test_every_parallel_result_and_then_the_reply_are_one_next_state():
    memory = Memory()
    first = memory.ask(talk(HI), calls("read", n=2, content="Both."))
    results = tuple(says("tool", f"r{n}", tool_call_id=call_id(first.id, n)) for n in range(2))
    second = memory.ask(talk(HI, first.response, *results, MORE), SURE)
    assert second.binding.parent == first.id
    assert first.next_state == (*results, MORE)


def test_a_rewritten_history_is_followed_by_its_last_call_id():
    """Old tool results are pruned, so that only an ancestor's prefix is left whole."""
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    second = memory.ask(talk(HI, HELLO, MORE), calls("read"))
    result = says("tool", "long text", tool_call_id=call_id(second.id, 0))
    third = memory.ask(talk(HI, HELLO, MORE, second.response, result), calls("read", content="Next."))
    pruned = replace(result, content="[old result cleared]")
    newest = says("tool", "ok", tool_call_id=call_id(third.id, 0))
    history = talk(HI, HELLO, MORE, second.response, pruned, third.response, newest)
    fourth = memory.ask(history, SURE)
    assert tree([first, second, third, fourth]) == [
        ("main", None, 0),
        ("main", 0, 0),
        ("main", 1, 0),
        ("main", 2, 0),
    ]
    assert (second.next_state, third.next_state) == ((result,), (newest,))


def test_a_result_whose_call_was_cut_off_still_answers_it():
    memory = Memory()
    first = memory.ask(talk(HI), calls("read"))
    result = says("tool", "ok", tool_call_id=call_id(first.id, 0).upper())
    assert memory.ask(talk(says("user", "(history dropped)"), result), SURE).binding.parent == first.id
    assert first.next_state == (result,)


def test_another_set_of_tools_in_the_middle_of_a_conversation_is_beside_it():
    def with_tools(conversation: Conversation, *names: str) -> Conversation:
        return replace(
            conversation, tools=tuple({"type": "function", "function": {"name": n}} for n in names)
        )

    memory = Memory()
    memory.ask(with_tools(talk(HI), "read", "edit", "run"), HELLO)
    grown = with_tools(talk(HI, HELLO, MORE), "read", "edit", "run", "web")
    assert memory.ask(grown, SURE).kind is Kind.MAIN
    assert memory.ask(with_tools(talk(HI, HELLO, HI), "remember"), SURE).kind is Kind.SIDE
    assert memory.ask(talk(HI, HELLO, says("user", "Title?")), SURE).kind is Kind.SIDE


def test_a_message_with_only_the_clients_text_is_not_a_reaction():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    block = says("user", "<system-reminder>be brief</system-reminder>")
    again = memory.ask(talk(HI, HELLO, block), SURE)
    assert again.binding.parent == first.id
    assert first.next_state == ()


def test_the_messages_a_turn_added_are_found_by_its_parents_call_if_the_history_was_rewritten():
    """The client left out what came before: fewer segments are left than the parent had."""
    turn = turn_id(1000.0, bytes(10))
    called = calls("read")(turn)
    result = says("tool", "x", tool_call_id=called.tool_calls[0].id)
    parent = a_turn(turn, message=called)
    assert added_messages((HI, called, result), parent, 9) == (result,)
    assert added_messages((HI, result), parent, 9) == (result,)
    spoken = a_turn(turn, message=HELLO)
    assert added_messages((HI, HELLO, MORE), spoken, 2) == (MORE,)
    assert added_messages((MORE, HI, HELLO, MORE), spoken, 9) == (MORE,)
    assert added_messages((HI, SURE, MORE), spoken, 9) == ()
