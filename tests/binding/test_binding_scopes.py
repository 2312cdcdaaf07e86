"""Conversations stay apart by scopes, client ids, call ids and the client's own statement."""

from __future__ import annotations

import pytest

from afterwit.binding.request import ClientSession
from afterwit.lifecycle import Reason
from afterwit.turn import Kind, Message, call_id
from tests.binding.bindings import HELLO, HI, MORE, SURE, Memory, calls, says, talk, tree


def test_two_identical_conversations_cannot_be_told_apart_and_do_not_train():
    memory = Memory()
    memory.ask(talk(HI), HELLO)
    memory.ask(talk(HI), HELLO)
    lost = memory.ask(talk(HI, HELLO, MORE), SURE)
    assert (lost.binding.reason, lost.binding.parent) == (Reason.AMBIGUOUS_PARENT, None)
    assert [row.next_state for row in memory] == [(), (), ()]
    found = memory.ask(talk(HI, HELLO, MORE, SURE, HI), HELLO)
    assert (found.binding.parent, found.binding.session) == (lost.id, lost.id)


def test_identical_conversations_with_calls_are_told_apart_by_their_ids():
    memory = Memory()
    one, two = (memory.ask(talk(HI), calls("read")) for _ in range(2))
    result = says("tool", "ok", tool_call_id=call_id(one.id, 0))
    assert memory.ask(talk(HI, one.response, result), SURE).binding.parent == one.id
    result = says("tool", "ok", tool_call_id=call_id(two.id, 0))
    assert memory.ask(talk(HI, two.response, result), SURE).binding.parent == two.id


def test_another_scope_sees_nothing():
    memory = Memory()
    first = memory.ask(talk(HI), calls("read"))
    result = says("tool", "ok", tool_call_id=call_id(first.id, 0))
    other = memory.ask(talk(HI, first.response, result), SURE, scope="other/client")
    assert (other.binding.parent, other.binding.session) == (None, other.id)


def test_an_explicit_id_keeps_identical_conversations_apart():
    memory = Memory()
    a, b = ClientSession(session="a"), ClientSession(session="b")
    rows = [memory.ask(talk(HI), HELLO, client=p) for p in (a, b)]
    rows += [memory.ask(talk(HI, HELLO, MORE), SURE, client=p) for p in (b, a)]
    assert tree(rows) == [("main", None, 0), ("main", None, 1), ("main", 1, 1), ("main", 0, 0)]


def test_the_clients_word_on_the_turn_decides():
    memory = Memory()
    said_side = memory.ask(talk(HI), HELLO, client=ClientSession(turn_type=Kind.SIDE))
    said_main = memory.ask(talk(says("user", "Pre-compaction memory flush. Store.")), HELLO)
    assert (said_side.kind, said_main.kind) == (Kind.SIDE, Kind.SIDE)
    flush = talk(says("user", "Pre-compaction memory flush. Store."))
    main = memory.ask(flush, HELLO, client=ClientSession(turn_type=Kind.MAIN, session="x"))
    assert main.kind is Kind.MAIN


def test_under_one_id_a_side_turn_of_its_own_prompt_is_the_sessions_and_a_main_one_is_not():
    memory, own = Memory(), ClientSession(session="s")
    title = talk(says("system", "You are a title generator."), HI)
    early = memory.ask(title, SURE, client=own)
    main = memory.ask(talk(HI), HELLO, client=own)
    late = memory.ask(title, SURE, client=own)
    other = memory.ask(talk(MORE), SURE, client=own)
    foreign = memory.ask(title, SURE, client=ClientSession(session="t"))
    assert tree([early, main, late, other, foreign]) == [
        ("side", None, 0),
        ("main", None, 1),
        ("side", None, 1),
        ("main", None, 3),
        ("side", None, 4),
    ]


def test_a_system_prompt_alone_is_nobodys_parent():
    memory = Memory()
    memory.ask(talk(says("system", "Be brief.")), HELLO)
    other = memory.ask(talk(HI), SURE)
    assert (other.binding.parent, other.binding.rejects, other.binding.session) == (None, None, other.id)


def test_a_turn_remembers_nothing_of_itself():
    memory = Memory()
    row = memory.ask(talk(HI), lambda turn: Message(role="assistant", content=turn))
    assert row.binding.session == row.id


QUOTES = (
    "Our log has the line {id}, what is that?",
    "[{{'id': '{id}', 'type': 'function'}}]",
    "Call id: {id}\nObservation:\nsunny",
    '```json\n{{"tool_call_id": "{id}"}}\n```',
)


@pytest.mark.parametrize("quote", QUOTES)
@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
@pytest.mark.parametrize("dialect", ["call", "toolu_"])
def test_an_id_in_a_text_of_another_conversation_proves_nothing(quote, role, dialect):
    memory = Memory()
    running = memory.ask(talk(HI), calls("read"))
    quoted = says(role, quote.format(id=call_id(running.id, 0).replace("call", dialect)))
    talked = [says("user", "Something else"), *([SURE] if role == "assistant" else []), quoted, MORE]
    stranger = memory.ask(talk(*talked), SURE)
    assert (stranger.binding.session, stranger.binding.parent) == (stranger.id, None)
    assert running.next_state == ()
    result = says("tool", "ok", tool_call_id=call_id(running.id, 0))
    assert memory.ask(talk(HI, running.response, result), SURE).binding.parent == running.id
    assert running.next_state == (result,)


@pytest.mark.parametrize("quote", QUOTES)
def test_a_call_that_a_client_writes_out_is_known_behind_its_own_prompt(quote):
    memory = Memory()
    first = memory.ask(talk(HI), calls("read", content="Let me look."))
    written = says("assistant", f"Let me look.\n{quote.format(id=call_id(first.id, 0))}")
    observed = says("user", "Observation:\nsunny")
    more = memory.ask(talk(HI, written, observed), calls("read"))
    assert (more.binding.parent, first.next_state) == (first.id, (observed,))
    other = memory.ask(talk(MORE, written, observed), SURE)
    assert (other.binding.parent, other.binding.session) == (None, other.id)


def test_a_call_is_nothing_to_another_session_of_the_client():
    memory = Memory()
    a, b = ClientSession(session="a"), ClientSession(session="b")
    first = memory.ask(talk(HI), calls("read"), client=a)
    result = says("tool", "ok", tool_call_id=call_id(first.id, 0))
    copied = talk(HI, first.response, result, MORE)
    other = memory.ask(copied, SURE, client=b)
    assert (other.binding.session, other.binding.parent, first.next_state) == (other.id, None, ())
    assert memory.ask(copied, SURE, client=a).binding.parent == first.id


def test_a_summary_is_nothing_to_another_session_of_the_client():
    memory = Memory()
    a, b = ClientSession(session="a"), ClientSession(session="b")
    summary = says(
        "assistant", "They looked for the broken test, found it in the parser, and repaired it. " * 2
    )
    wish = says("user", "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary.")
    going_on = talk(says("user", f"Notes: {summary.content}"), MORE)
    own = {}
    for client in (a, b):
        own[client] = memory.ask(talk(HI), HELLO, client=client)
        memory.ask(talk(HI, HELLO, wish), summary, client=client)
    for client in (a, b):
        assert memory.ask(going_on, SURE, client=client).binding.session == own[client].id
