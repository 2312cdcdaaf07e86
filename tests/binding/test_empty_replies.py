"""A reply without visible text gets its next state, whatever part the client sends back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.turn import Conversation, Kind, Message
from experiments.replay.captures import conversation
from tests.binding.bindings import HELLO, HI, MORE, SURE, Memory, calls, says, talk
from tests.products import some

CHAT, RESPONSES, MESSAGES = "chat", "responses", "messages"
NOTHING = "You said nothing"
LONG = says("user", "Please have a look at the build and tell me why it is broken")


def said(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def item(content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": content}


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
SENT_BACK: dict[str, dict[str, list[dict[str, Any]]]] = {
    CHAT: {
        "omitted": [],
        "empty": [said("")],
        "null": [said(None)],
        "without content": [{"role": "assistant"}],
        "blank": [said(" \n")],
        "no parts": [said([])],
        "an empty part": [said([{"type": "text", "text": ""}])],
        "reasoning": [said("", reasoning_content="Hm.")],
        "reasoning and null": [said(None, reasoning_content="Hm.")],
        "a thought in the text": [said("<think>\nHm.\n</think>\n\n")],
        "a thought that was cut": [said("<think>\nHm.")],
        "no calls": [said(None, tool_calls=[])],
        "twice": [said(""), said(None)],
        "hermes": [said("(empty)")],
        "litellm": [said("[System: Empty message content sanitised to satisfy protocol]")],
    },
    RESPONSES: {
        "omitted": [],
        "empty": [item([{"type": "output_text", "text": ""}])],
        "no parts": [item([])],
        "text": [said("")],
        "reasoning": [THOUGHT],
        "reasoning and message": [THOUGHT, item([{"type": "output_text", "text": ""}])],
        "hidden reasoning": [{**THOUGHT, "summary": []}],
    },
    MESSAGES: {
        "omitted": [],
        "empty": [said("")],
        "no blocks": [said([])],
        "blank": [said([{"type": "text", "text": " "}])],
        "thinking": [said([THINKING])],
        "thinking and text": [said([THINKING, {"type": "text", "text": ""}])],
        "hidden thinking": [said([{"type": "redacted_thinking", "data": "x"}])],
        "claude code": [said("(no content)")],
    },
}
FORMS = [(dialect, name) for dialect, forms in SENT_BACK.items() for name in forms]


def read(dialect: str, messages: list[dict[str, Any]]) -> Conversation:
    return conversation(dialect, {"input" if dialect == RESPONSES else "messages": messages})


@pytest.mark.parametrize(
    ("dialect", "form", "reply", "deep"),
    some(
        3,
        [
            pytest.param(dialect, form, reply, deep)
            for dialect, form in FORMS
            for reply in (says("assistant", ""), says("assistant", None, reasoning="Hm."))
            for deep in (False, True)
        ],
    ),
)
def test_the_next_request_answers_a_silent_reply(dialect, form, reply, deep):
    memory, back = Memory(), SENT_BACK[dialect][form]
    history = [{"role": "user", "content": "Hello there"}]
    if deep:
        memory.ask(read(dialect, history), HELLO)
        history += [said("Hello!"), {"role": "user", "content": "Fix the build"}]
    silent = memory.ask(read(dialect, history), reply)
    history += [*back, {"role": "user", "content": NOTHING}]
    after = memory.ask(read(dialect, history), SURE)
    history += [said("Sure."), {"role": "user", "content": "ok"}]
    more = memory.ask(read(dialect, history), HELLO)
    assert silent.said == (NOTHING,)
    assert after.said == ("ok",)
    assert (after.binding.parent, more.binding.parent) == (silent.id, after.id)
    assert {row.kind for row in memory} == {Kind.MAIN}
    assert len({row.binding.session for row in memory}) == 1


@pytest.mark.parametrize("joined", ["{}\n\n{}", "{}\n\n\n{}"])
def test_a_client_may_put_both_messages_of_the_person_into_one(joined: str):
    memory = Memory()
    silent = memory.ask(talk(LONG), says("assistant", ""))
    both = says("user", joined.format(LONG.content, NOTHING))
    after = memory.ask(talk(both), SURE)
    more = memory.ask(talk(both, SURE, MORE), HELLO)
    assert (after.binding.parent, more.binding.parent) == (silent.id, after.id)
    assert (silent.said, after.said) == ((NOTHING,), (MORE.content,))


def test_both_messages_may_be_parts_of_one():
    memory = Memory()
    history = [{"role": "user", "content": "Hi"}, said("Hello!")]
    memory.ask(read(MESSAGES, history[:1]), HELLO)
    asked, nothing = {"type": "text", "text": "Fix it"}, {"type": "text", "text": NOTHING}
    silent = memory.ask(read(MESSAGES, [*history, {"role": "user", "content": [asked]}]), says("assistant"))
    after = memory.ask(read(MESSAGES, [*history, {"role": "user", "content": [asked, nothing]}]), SURE)
    assert (after.binding.parent, silent.said) == (silent.id, (NOTHING,))


def test_a_few_words_that_others_begin_with_too_are_not_taken_apart():
    memory = Memory()
    silent = memory.ask(talk(HI), says("assistant", ""))
    stranger = memory.ask(talk(says("user", "Hi\n\nWhat is the capital of France?")), SURE)
    assert (stranger.binding.session, silent.next_state) == (stranger.id, ())


def test_only_the_system_may_speak_behind_a_silent_reply():
    memory = Memory()
    memory.ask(talk(HI), HELLO)
    silent = memory.ask(talk(HI, HELLO, MORE), says("assistant", ""))
    told = says("system", "The command was not found.")
    after = memory.ask(talk(HI, HELLO, MORE, says("assistant", ""), told), SURE)
    assert (after.binding.parent, silent.said) == (silent.id, (told.content,))


def test_another_reply_to_the_same_words_is_not_the_silent_one():
    memory = Memory()
    silent = memory.ask(talk(HI), says("assistant", ""))
    other = memory.ask(talk(HI, says("assistant", "Not ours"), MORE), SURE)
    assert (other.binding.parent, silent.next_state) == (None, ())


def test_of_a_silent_reply_and_its_regeneration_the_one_that_is_sent_back_goes_on():
    memory = Memory()
    memory.ask(talk(HI), HELLO)
    silent = memory.ask(talk(HI, HELLO, MORE), says("assistant", ""))
    again = memory.ask(talk(HI, HELLO, MORE), SURE)
    after = memory.ask(talk(HI, HELLO, MORE, SURE, HI), HELLO)
    assert (after.binding.parent, silent.next_state, again.said) == (again.id, (), ("Hi",))


def test_a_reply_that_was_deleted_is_not_the_silent_one_that_it_replaced():
    memory = Memory()
    memory.ask(talk(HI), HELLO)
    silent = memory.ask(talk(HI, HELLO, MORE), says("assistant", ""))
    again = memory.ask(talk(HI, HELLO, MORE), SURE)
    complaint = says("user", "Tool call error: none was made.")
    after = memory.ask(talk(HI, HELLO, MORE, complaint), HELLO)
    assert (after.binding.rejects, again.next_state, silent.next_state) == (again.id, (complaint,), ())


def test_of_two_silent_replies_the_newer_is_answered():
    memory = Memory()
    memory.ask(talk(HI), HELLO)
    older, newer = (memory.ask(talk(HI, HELLO, MORE), says("assistant", "")) for _ in range(2))
    after = memory.ask(talk(HI, HELLO, MORE, says("user", NOTHING)), SURE)
    assert (after.binding.parent, newer.said, older.next_state) == (newer.id, (NOTHING,), ())


def test_a_silent_reply_behind_the_results_of_tools_is_answered():
    memory = Memory()
    called = memory.ask(talk(HI), calls("read"))
    results = (called.response, says("tool", "ok", tool_call_id=called.response.tool_calls[0].id))
    silent = memory.ask(talk(HI, *results), says("assistant", ""))
    after = memory.ask(talk(HI, *results, says("assistant", ""), MORE), SURE)
    assert (after.binding.parent, silent.said, called.said) == (silent.id, (MORE.content,), ("ok",))


SPOKEN = st.text("abc de\n", min_size=1, max_size=12).filter(str.strip)


@given(st.lists(st.tuples(SPOKEN, st.none() | SPOKEN), min_size=1, max_size=6), st.booleans())
def test_every_turn_of_a_conversation_with_silent_replies_gets_what_the_person_said_next(rounds, omitted):
    memory, history, rows = Memory(), [], []
    for number, (asked, reply) in enumerate(rounds):
        history.append(says("user", f"{number} {asked}"))
        answer = Message(role="assistant", content=reply or "")
        rows.append(memory.ask(talk(*history), answer))
        history += [] if omitted and not reply else [answer]
    texts = [f"{number} {asked}" for number, (asked, _) in enumerate(rounds)]
    assert [row.said for row in rows[:-1]] == [(text,) for text in texts[1:]]
    assert [row.binding.parent for row in rows[1:]] == [row.id for row in rows[:-1]]
