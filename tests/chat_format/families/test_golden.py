"""The text of each family's models, whole and in every cut, is parsed as a client expects."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.chat_format.families import CONVENTIONS, NO_CALLS, THINK, Convention, Thought, convention_of
from afterwit.chat_format.parse import ResponseParser
from afterwit.dialects.dialect import CallDelta, ParsedCall, ReasoningDelta, ResponseEvent, TextDelta
from afterwit.turn import MOST_CALLS, call_id
from tests.chat_format.families.transcripts import GOLDEN, TOOLS, Transcript, golden, transcripts

TRANSCRIPTS = transcripts()
by_name = pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=str)
each = pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda entry: entry.name)


def parse(
    pieces: list[str], convention: Convention, thought: Thought | None = None
) -> tuple[str, str, list[tuple[str, str]], list[list[ResponseEvent]]]:
    """(reasoning, content, calls, the events of each piece and of the end)."""
    parser = ResponseParser(convention, thought=thought, tools=TOOLS)
    events = [*(parser.push(piece) for piece in pieces), parser.finish()]
    flat = [event for some in events for event in some]
    calls = [(event.name, event.arguments) for event in flat if isinstance(event, ParsedCall)]
    reasoning = "".join(event.text for event in flat if isinstance(event, ReasoningDelta))
    content = "".join(event.text for event in flat if isinstance(event, TextDelta))
    check_deltas(flat)
    message = parser.message(str)
    assert (message.reasoning or "", message.content or "") == (reasoning, content)
    assert [(call.name, call.arguments) for call in message.tool_calls] == calls
    return reasoning, content, calls, events


def check_deltas(events: list[ResponseEvent]) -> None:
    """The deltas of a call before its end begin its arguments, and are never a whole JSON text."""
    begun: dict[int, str] = {}
    order = [event.index for event in events if isinstance(event, CallDelta | ParsedCall)]
    complete = [event for event in events if isinstance(event, ParsedCall)]
    for event in events:
        if isinstance(event, CallDelta):
            begun[event.index] = begun.get(event.index, "") + event.arguments
            assert event.arguments
            assert begun[event.index][0] == "{"
            with pytest.raises(json.JSONDecodeError):
                json.loads(begun[event.index])
    assert order == sorted(order)
    assert len({call.index for call in complete}) == len(complete)
    assert all(call.arguments.startswith(begun.get(call.index, "")) for call in complete)


def at(text: str, *places: int) -> list[str]:
    return [text[a:b] for a, b in pairwise((0, *places, len(text)))]


def test_each_convention_has_a_golden_file_and_no_file_is_left_over():
    assert {path.stem for path in GOLDEN.glob("*.toml")} == {entry.name for entry in CONVENTIONS}


@each
def test_the_convention_follows_from_the_template(convention: Convention):
    assert convention_of(golden(convention.name)["template"]) is convention
    assert convention_of("{{ messages }}", convention.name) is convention


@by_name
def test_a_transcript_becomes_what_the_client_expects(transcript: Transcript):
    reasoning, content, calls, _ = parse([transcript.text], transcript.convention, transcript.thought)
    assert (reasoning, content) == (transcript.reasoning, transcript.content)
    assert [(name, json.loads(given)) for name, given in calls] == [
        (name, json.loads(expected)) for name, expected in transcript.calls
    ]


@by_name
def test_no_cut_of_the_stream_changes_the_message(transcript: Transcript):
    text, convention, thought = transcript.text, transcript.convention, transcript.thought
    whole = parse([text], convention, thought)[:3]
    assert parse(list(text), convention, thought)[:3] == whole
    for place in range(1, len(text)):
        assert parse(at(text, place), convention, thought)[:3] == whole


@by_name
def test_nothing_is_shown_that_is_taken_back(transcript: Transcript):
    """The output for a beginning of the stream is a beginning of the whole output."""
    reasoning, content, calls, _ = parse([transcript.text], transcript.convention, transcript.thought)
    told, said, made = "", "", []
    for some in parse(list(transcript.text), transcript.convention, transcript.thought)[3]:
        for event in some:
            if isinstance(event, ReasoningDelta):
                told += event.text
            elif isinstance(event, TextDelta):
                said += event.text
            elif isinstance(event, ParsedCall):
                made.append((event.name, event.arguments))
        assert reasoning.startswith(told)
        assert content.startswith(said)
        assert calls[: len(made)] == made


@by_name
def test_without_tools_no_call_is_made(transcript: Transcript):
    free = transcript.convention.without_calls
    assert parse([transcript.text], free, transcript.thought)[2] == []


@each
@pytest.mark.parametrize("opened", [False, True])
def test_a_forced_opening_leads_to_the_named_call(convention: Convention, opened: bool):
    """The end of the first golden transcript's call, put after the opening, completes it."""
    thought = convention.thoughts[0] if opened and convention.thoughts else None
    opening = convention.forced_opening("read", thought)
    free = convention.forced_opening(None, thought)
    assert opening.startswith(free)
    text = opening + golden(convention.name)["ending"]
    assert parse([text], convention, thought)[:3] == ("", "", [("read", '{"path": "a"}')])


def test_without_a_convention_no_call_can_be_forced():
    assert NO_CALLS.forced_opening("read", None) == ""


pieces = st.sampled_from(
    sorted(
        {mark for entry in CONVENTIONS for mark in entry.marks} | {"{", "}", "[", "]", '"', "a", " ", "\n"}
    )
)
texts = st.lists(
    pieces | st.sampled_from([row.text for row in TRANSCRIPTS]) | st.text(max_size=4), max_size=8
).map("".join)
conventions = st.sampled_from([*CONVENTIONS, NO_CALLS])


@given(text=texts, convention=conventions, opened=st.booleans(), data=st.data())
def test_any_text_reads_the_same_in_any_pieces(text, convention, opened, data):
    thought = convention.thoughts[0] if opened and convention.thoughts else None
    whole = parse([text], convention, thought)[:3]
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    assert parse(at(text, *places), convention, thought)[:3] == whole
    assert parse(list(text), convention, thought)[:3] == whole


@given(text=texts, convention=conventions)
def test_arguments_are_always_a_json_object(text, convention):
    for name, arguments in parse([text], convention)[2]:
        assert name
        assert isinstance(json.loads(arguments), dict)


plain = st.text(max_size=40).filter(lambda text: not any(sign in text for sign in "<[{"))


@given(text=plain, convention=conventions)
def test_plain_text_is_content_to_the_letter(text, convention):
    assert parse([text], convention)[:3] == ("", text, [])


@each
def test_a_beginning_of_no_mark_is_shown_at_once(convention: Convention):
    parser = ResponseParser(convention, tools=TOOLS)
    assert parser.push("Hello wor") == [TextDelta(text="Hello wor")]
    assert parser.push("ld!") == [TextDelta(text="ld!")]


@each
def test_the_first_character_of_a_mark_is_in_it_once(convention: Convention):
    thoughts = [mark for thought in convention.thoughts for mark in (thought.begin, thought.end)]
    for mark in (*(call.begin for call in convention.calls), *convention.wrappers, *thoughts):
        assert mark[0] not in mark[1:]


@pytest.mark.parametrize("over", [0, 1])
def test_calls_beyond_those_that_have_an_id_are_content(over: int):
    one = '<tool_call>{"name": "a"}</tool_call>'
    _, content, calls, _ = parse([one * (MOST_CALLS + over)], convention_of("<tool_call>"))
    assert len(calls) == MOST_CALLS
    assert call_id("0" * 26, len(calls) - 1)
    assert content == one * over


def test_only_a_prompt_that_ends_inside_the_reasoning_opens_it():
    hermes = convention_of("<tool_call>")
    assert hermes.open_thought("<|im_start|>assistant\n<think>\n") is THINK
    assert hermes.open_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n") is None
