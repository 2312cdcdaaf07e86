"""Binding case by case: retries, regenerations, rejections, parallel calls, compaction, ambiguity, lines."""

from __future__ import annotations

from dataclasses import replace

from afterwit.core.binding import ClientSession, added_messages
from afterwit.core.ids import call_id, turn_id
from afterwit.core.lifecycle import Reason
from afterwit.core.message import Conversation, Message
from afterwit.core.turn import Kind
from tests.core.bindings import Memory, calls, says, talk, tree
from tests.fakes.turns import a_turn

HI = says("user", "Hi")
HELLO = says("assistant", "Hello!")
MORE = says("user", "More, please")
SURE = says("assistant", "Sure.")


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
    assert first.next_state == (result,), "what a tool returned is true, whoever brings it"
    quoting = says("user", f"This session is continued from an earlier one.\n{SUMMARY.content}\nGo on.")
    after = memory.ask(talk(quoting), HELLO)
    assert (after.binding.session, after.binding.parent, after.kind) == (first.id, None, Kind.MAIN)
    assert side.next_state == ()
    elsewhere = memory.ask(talk(quoting), HELLO, scope="other/client")
    assert elsewhere.binding.session == elsewhere.id


def test_a_summary_that_ends_in_code_is_known_whoever_is_made_to_say_it():
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


def test_an_empty_response_has_no_prefix_of_its_own():
    memory = Memory()
    empty = memory.ask(talk(HI), says("assistant", ""))
    after = memory.ask(talk(HI, MORE), SURE)
    assert (after.binding.rejects, after.binding.parent) == (empty.id, None)
    assert empty.next_state == (MORE,)


def test_a_system_prompt_alone_is_nobodys_parent():
    memory = Memory()
    memory.ask(talk(says("system", "Be brief.")), HELLO)
    other = memory.ask(talk(HI), SURE)
    assert (other.binding.parent, other.binding.rejects, other.binding.session) == (None, None, other.id)


def test_several_choices_wait_until_one_goes_on():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    prompt = talk(HI, HELLO, MORE)
    one, two = (memory.ask(prompt, says("assistant", text)) for text in ("One.", "Two."))
    memory.ask(talk(*prompt.messages, two.response, HI), HELLO)
    assert (one.kind, two.kind) == (Kind.UNKNOWN, Kind.MAIN)
    assert (first.next_state, one.next_state, two.next_state) == ((MORE,), (), (HI,))


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


def test_a_message_that_only_injects_text_is_no_reaction():
    memory = Memory()
    first = memory.ask(talk(HI), HELLO)
    block = says("user", "<system-reminder>be brief</system-reminder>")
    again = memory.ask(talk(HI, HELLO, block), SURE)
    assert again.binding.parent == first.id
    assert first.next_state == ()


def test_a_turn_remembers_nothing_of_itself():
    memory = Memory()
    row = memory.ask(talk(HI), lambda turn: Message(role="assistant", content=turn))
    assert row.binding.session == row.id


def test_what_a_turn_brought_is_found_by_its_parents_call_where_the_history_was_rewritten():
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
