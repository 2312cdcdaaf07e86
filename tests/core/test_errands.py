"""Titles, summaries and reviews are told from conversations, before, beside and behind them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from afterwit.core.binding import client_session_of
from afterwit.core.message import Conversation, Message
from afterwit.core.turn import Kind
from tests.core.bindings import FINE, HELLO, Memory, says, talk

TOOLS = ({"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}},)
ASKED = says("user", "Have a look at the build")
SHORT = says("user", "Hi")
NAME_IT = says("system", "You generate a short title for a conversation.")
ODD = says("system", "Gib dem folgenden Auftrag eine Überschrift.")
REVIEW = says(
    "user", "Look back over this session and write down in the notes what should be remembered of it later."
)


def agent(*messages: Message) -> Conversation:
    return replace(talk(says("system", "You are an agent."), *messages), tools=TOOLS)


@pytest.mark.parametrize("system", [NAME_IT, ODD])
@pytest.mark.parametrize("quoted", ["{}", "Title this:\n{}\n"])
def test_a_request_without_tools_that_quotes_the_first_message_is_a_title_of_that_session(system, quoted):
    memory = Memory()
    first = memory.ask(agent(ASKED), HELLO)
    title = memory.ask(talk(system, says("user", quoted.format(ASKED.content))), FINE)
    assert (title.kind, title.binding.session) == (Kind.SIDE, first.id)
    assert first.kind is Kind.MAIN
    assert not first.superseded


@pytest.mark.parametrize("asked", [ASKED, SHORT])
def test_a_title_that_comes_before_the_conversation_is_known_once_it_begins(asked):
    memory = Memory()
    title = memory.ask(talk(ODD, asked), FINE, delivered=False)
    assert title.kind is Kind.MAIN, "nothing tells yet"
    first = memory.ask(agent(asked), HELLO)
    assert (title.kind, first.kind) == (Kind.SIDE, Kind.MAIN)
    assert not title.superseded


def test_words_for_a_title_decide_only_where_conversations_are_made_otherwise():
    asked = talk(NAME_IT, says("user", "Something that nobody else said"))
    assert Memory().ask(asked, FINE).kind is Kind.MAIN, "the person may be writing titles for a living"
    memory = Memory()
    memory.ask(agent(ASKED), HELLO)
    assert memory.ask(asked, FINE).kind is Kind.SIDE


def test_two_agents_that_are_asked_alike_are_two_conversations():
    memory = Memory()
    first = memory.ask(agent(ASKED), HELLO)
    other = memory.ask(replace(agent(ASKED), tools=(*TOOLS, *TOOLS)), FINE)
    assert (other.kind, other.binding.session, first.kind) == (Kind.MAIN, other.id, Kind.MAIN)


def test_a_title_under_another_session_id_is_no_errand_of_this_one():
    memory = Memory()
    ids = [client_session_of({"x-session-id": name}, {}) for name in "ab"]
    memory.ask(agent(ASKED), HELLO, client=ids[0])
    other = memory.ask(talk(ODD, ASKED), FINE, client=ids[1])
    assert (other.kind, other.binding.session) == (Kind.MAIN, other.id)


def test_a_review_behind_the_conversation_answers_nothing_and_the_person_goes_on():
    memory = Memory()
    first = memory.ask(agent(ASKED), HELLO)
    review = memory.ask(agent(ASKED, HELLO, REVIEW), FINE)
    assert (review.kind, first.next_state) == (Kind.SIDE, ())
    after = memory.ask(agent(ASKED, HELLO, SHORT), FINE)
    assert (after.kind, after.binding.parent, first.next_state) == (Kind.MAIN, first.id, (SHORT,))


def test_a_review_may_be_asked_for_by_the_system():
    memory = Memory()
    first = memory.ask(agent(ASKED), HELLO)
    review = memory.ask(agent(ASKED, HELLO, replace(REVIEW, role="system")), FINE)
    assert (review.kind, first.next_state) == (Kind.SIDE, ())


def test_a_person_who_goes_on_behind_a_review_is_on_the_main_line_again():
    memory = Memory()
    first = memory.ask(agent(ASKED), HELLO)
    review = memory.ask(agent(ASKED, HELLO, REVIEW), FINE)
    after = memory.ask(agent(ASKED, HELLO, REVIEW, FINE, SHORT), HELLO)
    assert (after.kind, after.binding.parent) == (Kind.MAIN, review.id)
    assert review.next_state == ()
    again = memory.ask(agent(ASKED, HELLO, REVIEW, FINE, SHORT, HELLO, SHORT), FINE)
    assert (again.kind, again.binding.session, after.next_state) == (Kind.MAIN, first.id, (SHORT,))


def test_a_short_wish_for_a_summary_is_a_persons():
    memory = Memory()
    first = memory.ask(agent(ASKED), HELLO)
    wish = says("user", "Summarize this conversation.")
    assert memory.ask(agent(ASKED, HELLO, wish), FINE).kind is Kind.MAIN
    assert first.next_state == (wish,)


@pytest.mark.parametrize(
    "wish",
    [
        "[SUGGESTION MODE: Suggest what the user might type next. Reply alone, in 2 to 12 words.]",
        "Suggest three questions that the user may ask next about this chat, as a JSON list.",
        "Please write a title for this chat that tells its topic, in at most six words, with no quotes.",
        "Write a detailed account of this conversation for whoever continues the work after you.",
    ],
)
def test_a_wish_of_the_client_about_the_chat_and_its_user_is_beside_the_conversation(wish: str):
    memory = Memory()
    first = memory.ask(agent(ASKED), HELLO)
    beside = memory.ask(agent(ASKED, HELLO, says("user", wish)), FINE)
    more = memory.ask(agent(ASKED, HELLO, SHORT), FINE)
    assert (beside.kind, more.kind) == (Kind.SIDE, Kind.MAIN)
    assert first.said == (SHORT.content,)


@pytest.mark.parametrize(
    "words",
    [
        "The title of the settings page is wrong: it should name the user and not the account.",
        "Suggest a better name for this function and write it, then run the tests and say what they say.",
        "Return JSON only from the endpoint of the user's sessions, and remove the unneeded field.",
        "Only the user may delete it",
    ],
)
def test_what_a_person_asks_of_the_work_is_no_wish_about_the_chat(words: str):
    memory = Memory()
    first = memory.ask(agent(ASKED), HELLO)
    more = memory.ask(agent(ASKED, HELLO, says("user", words)), FINE)
    assert more.kind is Kind.MAIN
    assert first.said == (words,)


def test_a_conversation_that_was_edited_last_is_found_again_without_its_beginning():
    """The edited branch is the one that goes on, though nothing had shown that it would."""
    memory = Memory()
    asked, again = says("user", "Look at the build, please"), says("user", "No: look at the tests, please")
    memory.ask(agent(asked), HELLO)
    memory.ask(agent(asked, HELLO, SHORT), says("assistant", "Which of the builds do you mean?"))
    edited = memory.ask(agent(asked, HELLO, again), says("assistant", "Both of the tests pass now."))
    assert edited.kind is Kind.UNKNOWN
    rest = memory.ask(agent(again, edited.response, SHORT), FINE)
    assert (rest.binding.parent, rest.binding.session) == (edited.id, edited.binding.session)
