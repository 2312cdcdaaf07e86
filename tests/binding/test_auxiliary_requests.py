"""Titles, summaries and reviews are not taken for conversations, before, during or after one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from afterwit.binding.request import ClientSession, client_session_of
from afterwit.lifecycle import State
from afterwit.turn import Conversation, Kind, Message, call_id
from tests.binding.bindings import FINE, HELLO, Memory, calls, says, talk

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


def test_words_for_a_title_decide_nothing_without_a_quote():
    memory = Memory()
    memory.ask(agent(ASKED), HELLO)
    asked = talk(NAME_IT, says("user", "Something that nobody else said"))
    assert memory.ask(asked, FINE).kind is Kind.MAIN, "the person may be writing titles for a living"


EVERYDAY = [
    "Suggest a name for my cat. Question: is Minka too common?",
    "Describe the user of this product in three sentences.",
    "Act as a coach. Your task is to offer suggestions for both of them. My request: we quarrel.",
    "What are good titles for a talk about the history of chess?",
    "Summarize the content of the following text: the dog barked, and the cat left.",
    "Categorize these messages by topic: hello; buy now; see you.",
    "Write a product description. Context: it is a lamp.",
    "Read the passage and answer the question. What is the name of the secretary?",
]
FRIENDLY = says("system", "You help the user. Answer questions, and suggest names and topics to ask of next.")


@pytest.mark.parametrize("system", [(), (says("system", "You are a helpful assistant."),), (FRIENDLY,)])
@pytest.mark.parametrize("words", EVERYDAY)
def test_a_chat_without_tools_next_to_an_agent_is_a_conversation(system, words):
    memory = Memory()
    memory.ask(agent(ASKED), HELLO)
    asked = says("user", words)
    chat = memory.ask(talk(*system, asked), FINE)
    assert (chat.kind, chat.binding.session) == (Kind.MAIN, chat.id)
    more = memory.ask(talk(*system, asked, FINE, SHORT), HELLO)
    assert (more.kind, chat.next_state) == (Kind.MAIN, (SHORT,))


@pytest.mark.parametrize("asked", [ASKED, SHORT, says("user", EVERYDAY[0])])
@pytest.mark.parametrize("agent_first", [True, False])
def test_the_words_of_another_conversation_alone_ask_for_nothing(asked, agent_first):
    memory = Memory()
    if agent_first:
        memory.ask(agent(asked), HELLO)
    chat = memory.ask(talk(asked), FINE)
    if not agent_first:
        memory.ask(agent(asked), HELLO)
    assert (chat.kind, chat.binding.session) == (Kind.MAIN, chat.id)


@pytest.mark.parametrize("agent_first", [True, False])
@pytest.mark.parametrize("system", [ODD, NAME_IT, FRIENDLY])
def test_what_seemed_an_errand_is_a_conversation_once_the_person_goes_on(agent_first, system):
    memory = Memory()
    if agent_first:
        first = memory.ask(agent(ASKED), HELLO)
    chat = memory.ask(talk(system, ASKED), FINE)
    if not agent_first:
        first = memory.ask(agent(ASKED), HELLO)
    assert chat.kind is Kind.SIDE
    more = memory.ask(talk(system, ASKED, FINE, SHORT), HELLO)
    assert (chat.kind, more.kind, more.binding.parent) == (Kind.MAIN, Kind.MAIN, chat.id)
    assert chat.store.turn(chat.id).turn.session == more.binding.session == chat.id
    assert (chat.next_state, chat.store.turn(chat.id).state) == ((SHORT,), State.ANSWERED)
    last = memory.ask(talk(system, ASKED, FINE, SHORT, HELLO, ASKED), FINE)
    assert (last.binding.session, more.next_state) == (chat.id, (ASKED,))
    assert (first.kind, first.next_state) == (Kind.MAIN, ())
    again = memory.ask(talk(system, ASKED), FINE)
    assert again.kind is Kind.MAIN, "people talk under this system text"


def test_a_client_that_goes_on_with_more_to_summarise_is_still_beside_the_conversation():
    memory = Memory()
    reply = says("assistant", "The build is broken by the parser.")
    memory.ask(agent(ASKED), reply)
    told = says("user", f"Fasse zusammen: {ASKED.content} / {reply.content}")
    side = memory.ask(talk(ODD, told), FINE)
    more = memory.ask(talk(ODD, told, FINE, says("user", f"Und weiter: {told.content}")), FINE)
    assert (side.kind, more.kind, side.next_state) == (Kind.SIDE, Kind.SIDE, ())


@pytest.mark.parametrize(
    ("opening", "client"),
    [
        (says("user", "Read HEARTBEAT.md if it exists (workspace context)."), None),
        (ASKED, ClientSession(turn_type=Kind.SIDE)),
    ],
)
def test_a_known_clients_errand_stays_one_when_a_person_goes_on_behind_it(opening, client):
    memory = Memory()
    beat = memory.ask(talk(opening), FINE, client=client)
    main = None if client is None else ClientSession(turn_type=Kind.MAIN)
    more = memory.ask(talk(opening, FINE, SHORT), HELLO, client=main)
    assert (beat.kind, beat.next_state, more.kind) == (Kind.SIDE, (), Kind.MAIN)


def test_a_chat_without_tools_goes_on_behind_what_seemed_a_wish_of_the_client():
    memory = Memory()
    first = memory.ask(talk(ASKED), HELLO)
    wish = says(
        "user", "Write a title for this chat that tells its topic, in at most six words, with no quotes."
    )
    beside = memory.ask(talk(ASKED, HELLO, wish), FINE)
    after = memory.ask(talk(ASKED, HELLO, wish, FINE, SHORT), HELLO)
    last = memory.ask(talk(ASKED, HELLO, wish, FINE, SHORT, HELLO, ASKED), FINE)
    assert (beside.kind, after.kind, last.kind) == (Kind.SIDE, Kind.MAIN, Kind.MAIN)
    assert (beside.next_state, after.next_state, last.binding.session) == ((), (ASKED,), first.id)


@pytest.mark.parametrize("told", ["Title for what begins so: Hi", "<chat>User: Hi Assistant: Hello!</chat>"])
def test_a_short_first_message_is_quoted_only_between_signs(told):
    memory = Memory()
    first = memory.ask(agent(SHORT), HELLO)
    title = memory.ask(talk(NAME_IT, says("user", told)), FINE)
    assert (title.kind, title.binding.session) == (Kind.SIDE, first.id)
    about = says("user", "History: name the topics of this content")
    assert memory.ask(talk(about), FINE).kind is Kind.MAIN


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


def test_a_review_may_be_asked_for_while_the_agent_works():
    memory = Memory()
    first = memory.ask(agent(ASKED), calls("run"))
    result = says("tool", "It fails.", tool_call_id=call_id(first.id, 0))
    review = memory.ask(agent(ASKED, first.response, result, REVIEW), FINE)
    assert (review.kind, first.next_state) == (Kind.SIDE, (result,))


def test_a_person_who_goes_on_behind_a_review_is_on_the_main_line_again():
    memory = Memory()
    first = memory.ask(agent(ASKED), HELLO)
    review = memory.ask(agent(ASKED, HELLO, REVIEW), FINE)
    after = memory.ask(agent(ASKED, HELLO, REVIEW, FINE, SHORT), HELLO)
    assert (after.kind, after.binding.parent) == (Kind.MAIN, review.id)
    assert review.next_state == ()
    again = memory.ask(agent(ASKED, HELLO, REVIEW, FINE, SHORT, HELLO, SHORT), FINE)
    assert (again.kind, again.binding.session, after.next_state) == (Kind.MAIN, first.id, (SHORT,))


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_a_message_without_the_sessions_tools_is_a_persons_once_the_conversation_goes_on(tools):
    memory = Memory()
    first = memory.ask(agent(ASKED), HELLO)
    bare = memory.ask(replace(agent(ASKED, HELLO, SHORT), tools=()), FINE)
    assert (bare.kind, first.next_state) == (Kind.SIDE, ()), "it may be a client's"
    more = memory.ask(replace(agent(ASKED, HELLO, SHORT, FINE, ASKED), tools=tools), HELLO)
    assert (bare.kind, more.kind, more.binding.session) == (Kind.MAIN, Kind.MAIN, first.id)
    assert (first.next_state, bare.next_state) == ((SHORT,), (ASKED,))
    last = memory.ask(agent(ASKED, HELLO, SHORT, FINE, ASKED, HELLO, SHORT), FINE)
    assert (last.kind, more.next_state) == (Kind.MAIN, (SHORT,))


@pytest.mark.parametrize(
    ("words", "client"),
    [(REVIEW, None), (says("user", "Pre-compaction memory flush. Now."), None), (SHORT, Kind.MAIN)],
)
def test_a_clients_request_without_the_sessions_tools_stays_one_when_a_person_goes_on(words, client):
    memory = Memory()
    said = None if client is None else ClientSession(turn_type=client)
    first = memory.ask(agent(ASKED), HELLO, client=said)
    side = None if client is None else ClientSession(turn_type=Kind.SIDE)
    bare = memory.ask(replace(agent(ASKED, HELLO, words), tools=()), FINE, client=side)
    more = memory.ask(agent(ASKED, HELLO, words, FINE, SHORT), HELLO, client=said)
    assert (bare.kind, more.kind, more.binding.session) == (Kind.SIDE, Kind.MAIN, first.id)
    assert (first.next_state, bare.next_state) == ((), ())


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
        "Provide a concise and complete summarization of the entire dialog in at most 5 sentences, in words.",
        "Provide a detailed prompt for continuing our conversation above.",
        "Create a summary of the conversation above:",
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


@pytest.mark.parametrize("system", [(), (says("system", "You answer support tickets."),)])
def test_a_form_that_names_the_possible_replies_is_no_copy_of_the_conversation_before(system):
    form = "Read the ticket carefully. " * 9 + "Labels: needs human review, approve automatically. Ticket: "
    memory = Memory()
    asked = [talk(*system, says("user", form + text)) for text in ("my parcel is late", "I am happy")]
    first = memory.ask(asked[0], says("assistant", "needs human review"))
    second = memory.ask(asked[1], says("assistant", "approve automatically"))
    assert (second.kind, second.binding.session) == (Kind.MAIN, second.id)
    assert not first.next_state
