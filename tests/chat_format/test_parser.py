"""Reading responses: distinguishing their parts, holding text back, and calls that turn out to be none."""

from __future__ import annotations

import json

import pytest

from afterwit.chat_format.families import CONVENTIONS, HERMES, LLAMA, THINK
from afterwit.chat_format.parse import ResponseParser
from afterwit.dialects.dialect import ParsedCall, ReasoningDelta, TextDelta

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'


def read(text: str, step: int = 0) -> tuple[str, list[tuple[str, str]]]:
    """(content, calls) of a response that arrives whole, or in pieces of `step` characters."""
    parser = ResponseParser(HERMES)
    size = step or len(text)
    events = [event for at in range(0, len(text), size) for event in parser.push(text[at : at + size])]
    events += parser.finish()
    calls = [(event.name, event.arguments) for event in events if isinstance(event, ParsedCall)]
    return "".join(event.text for event in events if isinstance(event, TextDelta)), calls


def test_the_message_is_what_openai_chat_has():
    parser = ResponseParser(HERMES)
    parser.push(f"<think>\nI should.\n</think>\n\nLet me.\n{CALL}\n{CALL}")
    parser.finish()
    function = {"name": "read", "arguments": '{"path": "a.txt"}'}
    assert parser.message(lambda index: f"id{index}").to_dict() == {
        "role": "assistant",
        "content": "Let me.",
        "reasoning_content": "I should.",
        "tool_calls": [{"id": f"id{index}", "type": "function", "function": function} for index in (0, 1)],
    }


def test_content_streams_before_the_response_ends():
    parser = ResponseParser(HERMES)
    assert parser.push("Hello wor") == [TextDelta(text="Hello wor")]
    assert parser.push("ld <tool") == [TextDelta(text="ld")]
    assert parser.push("box>") == [TextDelta(text=" <toolbox>")]
    assert parser.finish() == []


def test_reasoning_streams_before_it_ends():
    parser = ResponseParser(HERMES, thought=THINK)
    assert parser.push("\nso ") == [ReasoningDelta(text="so")]
    assert parser.push("far</th") == [ReasoningDelta(text=" far")]
    assert parser.push("ink>\n\n") == []
    assert parser.push("\nDone.") == [TextDelta(text="Done.")]


def test_a_pure_call_has_no_content():
    parser = ResponseParser(HERMES)
    parser.push(CALL)
    parser.finish()
    assert parser.message(str).content is None


def test_the_arguments_are_the_text_that_was_sampled():
    for written in ('{"path":"a"}', '{ "path" : "\\u00e4" }', '{"arguments": {"n": 1.0}}', "{}"):
        assert read(f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>')[1] == [("f", written)]


def test_an_end_mark_inside_an_argument_is_part_of_the_argument():
    arguments = json.dumps({"text": "write </tool_call> here"})
    assert read(f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>')[1] == [("f", arguments)]


@pytest.mark.parametrize("step", [0, 7])
def test_an_unfinished_argument_with_many_end_marks_is_content(step):
    text = '<tool_call>{"name": "f", "arguments": {"a": "' + "</tool_call>" * 50
    assert read(text, step) == (text, [])


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    "malformed",
    [
        "<tool_call>not json</tool_call>",
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "not an object"}</tool_call>',
        '<tool_call>{"name": "f", "argum',
        "<tool_call>" + "[" * 5000,
    ],
    ids=lambda text: text[:40],
)
def test_a_malformed_call_is_content(malformed, step):
    assert read("Now:" + malformed, step) == ("Now:" + malformed, [])


def test_a_good_call_survives_a_malformed_one_before_it():
    content, calls = read(f"<tool_call>oops</tool_call>\n{CALL}")
    assert content == "<tool_call>oops</tool_call>"
    assert [name for name, _ in calls] == ["read"]


def test_a_call_without_its_end_mark_is_a_call():
    assert read(CALL.removesuffix("\n</tool_call>"))[1] == [("read", '{"path": "a.txt"}')]


def test_arguments_written_as_a_string_are_the_object_in_it():
    text = '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>'
    assert read(text)[1] == [("f", '{"a": 1}')]


def test_plain_text_streams_where_the_whole_response_may_be_calls():
    parser = ResponseParser(LLAMA)
    assert parser.push("Hello ") == [TextDelta(text="Hello ")]


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda entry: entry.name)
def test_an_empty_response_is_empty(convention):
    parser = ResponseParser(convention)
    assert parser.push("") + parser.finish() == []
    assert parser.message(str).content == ""
