"""Sentences of people that may teach, and those that hold what only they could know."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.judging.polarity import REPLIES
from afterwit.judging.questions import JudgeView
from afterwit.turn import Message, ToolCall
from afterwit.vetting.own_words import teachable
from tests.timing import check_linear

VIEW = JudgeView(
    request="Whose brush is on the table?",
    context=(Message(role="user", content="We fly with LH4711 at 7:40 on Friday, says Nadia."),),
    tools=(),
    response=Message(
        role="assistant",
        content="It is Maria's brush, I think.",
        tool_calls=(ToolCall(id="c1", name="look", arguments='{"room": "Kitchen"}'),),
    ),
    next_state=(Message(role="tool", content="The brush is Oscar's."),),
)

MANNER = [
    "Keep it short.",
    "Call me Ana.",
    "Please address me as Doctor Lee.",
    "Answer in at most 250 words.",
    "Two lines of 120 characters at most, please.",
    "Give three to five short sentences.",
    "I said 3 names, not one.",
    "No greeting? Say Hi or Hello first.",
    "Please answer in Italian, with British spelling.",
    "I need it in Rust.",
    "Use Django, not Flask.",
    "I use tabs, not spaces.",
    "Please give me times in the 24 hour format, and lengths in Celsius-free units.",
    "Your code throws a TypeError.",
    "Return JSON, not XML.",
    "TOO LONG!!!",
    "It's not what I asked for.",
    "That's wrong. It is 4.",
    "No type hints? We always use them.",
    "From now on only use dollars.",
    "Bitte nenn mich Ana.",
    "Viel zu lange Antwort, höchstens 300 Wörter bitte.",
    "Das ist keine Tabelle.",
    "Appelle-moi Ana.",
    "Plus court, s'il te plaît.",
    "Llámame Ana, por favor.",
    "Più breve, al massimo 100 parole.",
    "太长了,最多50字。",
    "もっと短くしてください。",
]

KNOWN_TO_THEM = [
    "The brush is Oscar's.",
    "the brush is oscar's",
    "Oscar's, of course.",
    "No, it belongs to oscar.",
    "No, Oscar Miller owns it.",
    "My name is Ana.",
    "my cat is called minka",
    "I live in Hamburg.",
    "I am 34.",
    "We have 2 children.",
    "Call me at +49 170 1234567.",
    "My number is 555-0199-22.",
    "The meeting is at 9:15.",
    "We meet at 5 pm.",
    "It was on Sunday.",
    "Her birthday is on 3 May.",
    "The deadline is 2026-03-01.",
    "It costs 45 euros.",
    "I paid $30 for it.",
    "The flight is LH1234.",
    "The door code is 8841.",
    "Send it to bob@corp.io instead.",
    "The page is https://wiki.corp.io/x.",
    "Ask @oscar42 about it.",
    "Use Oscar's brush.",
    "Der Pinsel gehört Oscar.",
    "Ich bin 34.",
    "C'est le pinceau d'Oscar.",
    "El pincel es de Oscar.",
    "Il pennello è di Oscar.",
    "我的电话是13800138000。",
    "会议在3月5日。",
]

SEEN = [
    "It's Maria's brush, you were right, just say it briefly.",
    "The flight is LH4711, as I wrote.",
    "I told you that we fly at 7:40 on Friday.",
    "Ask Nadia first.",
    "Look in the Kitchen first.",
]


@pytest.mark.parametrize("words", [*MANNER, *SEEN])
def test_manner_and_values_that_the_model_had_seen_may_be_taught(words):
    assert teachable(words, VIEW) == words


@pytest.mark.parametrize("words", KNOWN_TO_THEM)
def test_a_value_that_only_the_person_knew_is_not_taught(words):
    assert teachable(words, VIEW) == ""


def test_a_tools_result_after_the_response_was_not_seen():
    shown = VIEW.context + VIEW.next_state
    assert teachable("The brush is Oscar's.", VIEW) == ""
    before = JudgeView(request="", context=shown, tools=(), response=VIEW.response, next_state=())
    assert teachable("The brush is Oscar's.", before) == "The brush is Oscar's."


@pytest.mark.parametrize("secret", KNOWN_TO_THEM)
@pytest.mark.parametrize(
    "manner", ["That is far too long.", "Bitte kürzer, ohne Liste!", "Use version 1.2 of it."]
)
def test_of_several_sentences_those_about_manner_stay(manner, secret):
    assert teachable(f"{manner} {secret}", VIEW) == manner
    assert teachable(f"{secret}\n{manner}", VIEW) == manner


def test_what_is_left_must_be_more_than_a_no():
    assert teachable("No. The brush is Oscar's.", VIEW) == ""


@pytest.mark.parametrize(
    "words", ["As the hint says, be brief.", "Be brief. Follow the [user's hint / instruction]."]
)
def test_talk_of_hints_is_left_out(words):
    assert "hint" not in teachable(words, VIEW)


def test_most_shipped_complaints_may_be_taught():
    said = REPLIES.texts["complaint"]
    assert [words for words in said if teachable(words, VIEW) != words] == []


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "A ",
        "Aa ",
        "1",
        "1.",
        "1 ",
        "1-",
        "@",
        "a@",
        "my ",
        "my a ",
        "is x's ",
        ".",
        "(",
        "Call me ",
        "5 words ",
        "LH1",
        "\n",
        "'s ",
    ],
)
def test_hostile_words_take_time_in_proportion_to_their_length(piece):
    check_linear(lambda words: teachable(words, VIEW), lambda size: (piece * size)[:size], 3_000)


def test_a_huge_conversation_is_read_once():
    seen = " ".join(f"word{at}" for at in range(200_000))
    view = JudgeView(request=seen, context=(), tools=(), response=VIEW.response, next_state=())
    began = time.process_time()
    assert teachable("No, Oscar owns it. " * 50, view) == ""
    assert time.process_time() - began < 3


@given(st.text(max_size=200))
def test_what_is_taught_is_part_of_what_was_said(words):
    taught = teachable(words, VIEW)
    assert taught == words or all(line.strip() in words for line in taught.split("\n"))
