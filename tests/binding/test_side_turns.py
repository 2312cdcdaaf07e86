"""Side turns by the client's statement, by their shape, wording or descent; the first sign decides."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.binding.request import ClientSession, IncomingRequest, Shape, read_request, shape_of
from afterwit.binding.side_turns import classify, differs, known_openings, opens_as_known
from afterwit.turn import Conversation, Kind
from tests.binding.bindings import recorded, says

AGENT = Shape(tools=frozenset({"read", "edit", "run", "web"}), streamed=True)
HI = says("user", "Hi")


def kind(*messages, said=None, shape=AGENT, usual=(AGENT,), parent=Kind.MAIN, about_another=False) -> Kind:
    return classify(
        replace(read(*(messages or (HI,))), shape=shape, client=ClientSession(turn_type=said)),
        usual=usual,
        parent=parent,
        about_another=about_another,
        resumes=False,
        repeats=False,
    )


def read(*messages) -> IncomingRequest:
    said = Conversation(messages=messages)
    return read_request(turn="t", scope="s", conversation=said, client=ClientSession(), streamed=True)


def test_what_looks_like_the_session_is_the_main_line():
    assert kind() is Kind.MAIN


def test_the_clients_word_comes_first():
    review = says("user", "Review the conversation above and update the skill library.")
    assert kind(review, said=Kind.MAIN, parent=Kind.SIDE) is Kind.MAIN
    assert kind(said=Kind.SIDE) is Kind.SIDE


@pytest.mark.parametrize(
    "shape",
    [
        Shape(tools=frozenset(), streamed=True),
        Shape(tools=frozenset({"remember"}), streamed=True),
        Shape(tools=AGENT.tools, streamed=False, tiny=True),
        Shape(tools=AGENT.tools - {"web"}, streamed=False),
    ],
)
def test_another_shape_than_the_sessions_is_beside_it(shape):
    assert kind(shape=shape) is Kind.SIDE


@pytest.mark.parametrize(
    ("shape", "usual"),
    [
        (Shape(tools=AGENT.tools | {"mcp"}, streamed=True), AGENT),
        (Shape(tools=AGENT.tools, streamed=False), AGENT),
        (AGENT, Shape(tools=frozenset(), streamed=False)),
        (Shape(tools=frozenset(), streamed=False), None),
    ],
)
def test_small_differences_and_unknown_habits_decide_nothing(shape, usual):
    assert kind(shape=shape, usual=() if usual is None else (usual,)) is Kind.MAIN


MEMORY = Shape(tools=frozenset({"read", "edit", "note"}), streamed=True, system="other")
"""Two of five tools are common."""


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (replace(MEMORY, tools=frozenset({"read", "edit", "run", "note"})), Kind.SIDE),
        (replace(MEMORY, tools=frozenset({"read", "edit", "run", "note"}), system=""), Kind.MAIN),
        (replace(MEMORY, tools=frozenset({"read", "edit", "run"})), Kind.MAIN),
        (replace(MEMORY, tools=AGENT.tools | {"note"}), Kind.MAIN),
        (replace(MEMORY, system=""), Kind.SIDE),
    ],
)
def test_a_tool_set_that_is_only_somewhat_unlike_needs_another_system_text_as_well(shape, expected):
    assert kind(shape=shape) is expected


def test_a_new_conversation_that_carries_a_known_one_is_beside_it():
    assert kind(usual=(), parent=None, about_another=True) is Kind.SIDE
    assert kind(usual=(), parent=None, about_another=True, said=Kind.MAIN) is Kind.MAIN


def test_an_agent_that_is_handed_the_conversation_is_on_the_main_line():
    """By a call and its result, not by words. The agent that spoke before may speak again."""
    other = Shape(tools=frozenset({"book", "cancel"}), streamed=True)
    handed = (HI, says("assistant", "a"), says("tool", "b"))
    assert kind(*handed, shape=other) is Kind.MAIN
    assert kind(*handed, HI, shape=other) is Kind.SIDE
    assert kind(*handed, HI, shape=other, usual=(AGENT, other)) is Kind.MAIN
    assert kind(*handed, shape=Shape(tools=frozenset(), streamed=True, system="other")) is Kind.SIDE


def test_the_answer_after_a_tools_result_needs_no_tools_under_the_sessions_system_text():
    """Some agents end their work with a request that lists no tools."""
    handed = (HI, says("assistant", "a"), says("tool", "b"))
    bare = Shape(tools=frozenset(), streamed=True)
    assert kind(*handed, shape=bare) is Kind.MAIN
    assert kind(*handed, HI, shape=bare) is Kind.SIDE


def test_a_descendant_of_a_side_turn_is_beside_the_line():
    assert kind(parent=Kind.SIDE) is Kind.SIDE
    assert kind(parent=Kind.UNKNOWN) is Kind.MAIN


def test_the_recorded_side_turns_and_no_others_open_with_known_words():
    side = {("hermes_review", n) for n in (10, 11, 15)} | {("opencode", 16)}
    side |= {("opencode_compaction", n) for n in (2, 4)}
    names = ["hermes", "hermes_review", "hermes_delegates", "openclaw", "opencode", "opencode_compaction"]
    names += ["mini_swe_agent", "litellm", "openai_sdk", "aider"]
    found = {
        (name, request["n"])
        for name in names
        for request in recorded(name)
        if _opens_as_known(
            [says(m["role"], m["content"]) for m in request["messages"] if not isinstance(m["content"], list)]
        )
    }
    assert found == side


def _opens_as_known(messages) -> bool:
    return opens_as_known(read(*messages))


def test_a_pattern_counts_only_in_its_place():
    words = "You are a title generator."
    assert kind(says("system", f"  {words} Output only a title."), HI) is Kind.SIDE
    assert kind(HI, says("user", f"He said: {words}")) is Kind.MAIN
    flush = says("user", "Pre-compaction  memory flush.\nStore what matters.")
    assert kind(flush) is Kind.SIDE
    assert kind(flush, says("assistant", "Stored."), HI) is Kind.MAIN


@pytest.mark.parametrize(
    "words",
    [
        "Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A title",
        "Given the following... please reply with a title for the chat that is 3-4 words.\n\nHello!",
        "Based on the chat history, give this conversation a name.\n\n```\nHi\n```",
        "Here is the query:\n\n--------------\n\nHi\n\n--------------\n\nCreate a phrase as a title for it.",
        "You need to summarize the user's conversation into a title of no more than 10 words: Hi",
        'Summarize in a 10-word Title. Give the title only. "Hi"',
        "Generate an enhanced version of this prompt (reply with only the enhanced prompt):\n\nHi",
        "### Task:\nAnalyze the chat history to determine the necessity of generating search queries, in ...",
        "### Task:\nYou are an autocompletion system. Continue the text in `<text>` ...",
        "### Task:\nGenerate a detailed prompt for am image generation task based on the given language ...",
        "Your task is to reflect the speaker's likely facial expression through a fitting emoji. ...",
        'Query: History:\nUSER: """Hi"""\nQuery: Hi',
    ],
)
def test_what_chat_applications_ask_for_beside_a_short_conversation_does_not_train(words):
    assert kind(says("user", words)) is Kind.SIDE


def test_the_open_messages_are_those_after_the_last_answer():
    assert read(HI, says("assistant", "a"), says("tool", "b"), HI).open == 2
    assert read(HI).open == 0


@pytest.mark.parametrize("role", ["user", "system"])
def test_an_instruction_of_a_role_play_client_after_a_reply_is_a_side_turn(role: str):
    wish = "Ignore previous instructions. Summarize the most important facts and events in the story so far."
    said = (HI, says("assistant", "Once there was a dragon."))
    assert kind(*said, says(role, wish)) is Kind.SIDE
    assert kind(*said, says("user", f"Why did you write '{wish}'?")) is Kind.MAIN


def test_every_known_pattern_is_long_enough_to_be_no_coincidence():
    assert all(len(starts) >= 20 for words in known_openings().values() for starts in words)


@given(tools=st.frozensets(st.text(max_size=6), max_size=4), streamed=st.booleans())
def test_a_shape_survives_the_store(tools, streamed):
    shape = Shape(tools=tools, streamed=streamed)
    assert Shape.read(str(shape)) == shape
    assert not differs(shape, shape)
    assert json.loads(str(shape))["tools"] == sorted(tools)


def test_a_shape_is_tiny_with_two_messages_beside_the_systems():
    said = (says("system", "x"), HI, says("assistant", "y"))
    assert shape_of(Conversation(messages=said), streamed=False).tiny
    assert not shape_of(Conversation(messages=(*said, HI)), streamed=False).tiny
