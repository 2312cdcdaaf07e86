"""The turn that a request follows, and its next state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from afterwit.binding.bind import added_messages
from afterwit.lifecycle import Reason
from afterwit.turn import Conversation, Kind, Message, call_id, turn_id
from tests.binding.bindings import FINE, HELLO, HI, MORE, SURE, Memory, calls, says, talk, tree
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


def test_the_results_of_calls_that_a_client_sends_one_by_one_are_one_next_state():
    memory = Memory()
    first = memory.ask(talk(HI), calls("read", n=2, content="Both."))
    results = tuple(says("tool", f"r{n}", tool_call_id=call_id(first.id, n)) for n in range(2))
    one, other = (says("assistant", tool_calls=(call,)) for call in first.response.tool_calls)
    history = talk(HI, one, results[0], other, results[1])
    second = memory.ask(history, calls("read"))
    assert second.binding.parent == first.id
    assert first.next_state == results
    parent = memory.store.turn(first.id).turn
    assert added_messages(history.messages, parent, second.incoming.depth) == results
    last = says("tool", "r2", tool_call_id=call_id(second.id, 0))
    memory.ask(talk(*history.messages, second.response, last, MORE), SURE)
    assert (first.next_state, second.next_state) == (results, (last, MORE))


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


def test_what_the_system_alone_says_behind_a_reply_came_of_it():
    """Beside words of the person or a tool's result it is a reminder."""
    memory = Memory()
    ran, reminded = says("system", "Ran command: ls\n\na.py"), says("developer", "Be brief.")
    first = memory.ask(talk(HI), HELLO)
    second = memory.ask(talk(HI, HELLO, ran, reminded), SURE)
    memory.ask(talk(HI, HELLO, ran, reminded, SURE, reminded, MORE), FINE)
    assert first.next_state == (says("tool", ran.content), says("tool", reminded.content))
    assert second.next_state == (MORE,)


def test_a_message_with_only_the_clients_text_is_not_a_reaction():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    block = says("user", "<system-reminder>be brief</system-reminder>")
    again = memory.ask(talk(HI, HELLO, block), SURE)
    assert again.binding.parent == first.id
    assert first.next_state == ()
    memory.ask(talk(HI, HELLO, replace(block, role="system")), SURE)
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


def renamed(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The history of a client that renumbers all calls of a conversation."""
    known = {call.id: f"call_{at:035}" for at, call in enumerate(c for m in messages for c in m.tool_calls)}
    return tuple(
        replace(
            message,
            tool_calls=tuple(replace(call, id=known[call.id]) for call in message.tool_calls),
            tool_call_id=known.get(message.tool_call_id or ""),
        )
        for message in messages
    )


def test_calls_that_a_client_gives_ids_of_its_own_are_followed_by_what_they_say():
    memory, history = Memory(), [HI]
    for content in (None, "Once more.", None):
        row = memory.ask(talk(*renamed(history)), calls("run", '{"n": 1}', content=content, n=2))
        made = enumerate(row.response.tool_calls)
        history += [row.response, *(says("tool", f"{at}", tool_call_id=call.id) for at, call in made)]
    memory.ask(talk(*renamed(history)), FINE)
    assert tree(memory.rows) == [("main", None, 0), ("main", 0, 0), ("main", 1, 0), ("main", 2, 0)]
    assert [row.said for row in memory] == [("0", "1")] * 3 + [()]
    for row in memory.rows[:-1]:
        results = [message.tool_call_id for message in row.next_state]
        assert results == [call.id for call in row.response.tool_calls]


def test_the_same_calls_of_two_conversations_under_a_clients_own_ids_are_not_told_apart():
    memory = Memory()
    first = [memory.ask(talk(HI), calls("run")) for _ in range(2)][-1]
    result = says("tool", "done", tool_call_id=first.response.tool_calls[0].id)
    row = memory.ask(talk(*renamed([HI, first.response, result])), FINE)
    assert (row.binding.parent, row.binding.reason) == (None, Reason.AMBIGUOUS_PARENT)


def test_a_call_under_an_id_of_another_conversation_is_not_this_ones():
    memory = Memory()
    _, other = (memory.ask(talk(says("user", text)), calls("run")) for text in ("Run it.", "And that."))
    result = says("tool", "done", tool_call_id=other.response.tool_calls[0].id)
    row = memory.ask(talk(says("user", "Run it."), other.response, result), FINE)
    assert row.binding.parent == other.id
