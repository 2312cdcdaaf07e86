"""Reading responses: golden streams, and properties that hold for any text in any pieces."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.core.ids import MOST_CALLS, call_id
from afterwit.wire.model_text.conventions import (
    CONVENTIONS,
    HERMES,
    LLAMA,
    NO_CALLS,
    Convention,
    convention_of,
)
from afterwit.wire.model_text.reasoning import opens_reasoning
from afterwit.wire.model_text.response_parser import ResponseParser
from afterwit.wire.response import ParsedCall, ReasoningDelta, TextDelta
from tests.fakes.templates import LLAMA3_TEMPLATE, QWEN3_TEMPLATE
from tests.wire.test_detokenize import cuts, split


def read(text: str, convention: Convention = HERMES, *, reasoning: bool = False, at: tuple[int, ...] = ()):
    """(thought, content, calls, message) of a response that arrives in pieces."""
    parser = ResponseParser(convention, reasoning=reasoning)
    events = [event for piece in split(text, at) for event in parser.push(piece)] + parser.finish()
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    content = "".join(event.text for event in events if isinstance(event, TextDelta))
    calls = [(event.index, event.name, event.arguments) for event in events if isinstance(event, ParsedCall)]
    return thought, content, calls, parser.message(lambda index: f"id{index}")


CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'


def test_the_convention_follows_from_the_template():
    assert convention_of(QWEN3_TEMPLATE) is HERMES
    assert convention_of(LLAMA3_TEMPLATE) is LLAMA
    assert convention_of("{{ messages }}") is NO_CALLS
    assert convention_of("<tool_call>\n<function=f>") is NO_CALLS


def test_reasoning_content_and_parallel_calls_are_separated():
    thought, content, calls, message = read(f"<think>\nI should.\n</think>\n\nLet me.\n{CALL}\n{CALL}")
    assert (thought, content) == ("I should.", "Let me.")
    assert calls == [(0, "read", '{"path": "a.txt"}'), (1, "read", '{"path": "a.txt"}')]
    assert message.to_dict() == {
        "role": "assistant",
        "content": "Let me.",
        "reasoning_content": "I should.",
        "tool_calls": [
            {
                "id": f"id{index}",
                "type": "function",
                "function": {"name": "read", "arguments": '{"path": "a.txt"}'},
            }
            for index in (0, 1)
        ],
    }


def test_content_streams_before_the_response_ends():
    parser = ResponseParser(HERMES)
    assert parser.push("Hello wor") == [TextDelta(text="Hello wor")]
    assert parser.push("ld <tool") == [TextDelta(text="ld")]
    assert parser.push("box>") == [TextDelta(text=" <toolbox>")]
    assert parser.finish() == []


def test_reasoning_streams_before_it_ends():
    parser = ResponseParser(HERMES)
    assert parser.push("<think>\nso ") == [ReasoningDelta(text="so")]
    assert parser.push("far</th") == [ReasoningDelta(text=" far")]
    assert parser.push("ink>\n\n") == []
    assert parser.push("\nDone.") == [TextDelta(text="Done.")]


def test_a_prompt_may_leave_the_reasoning_open():
    assert opens_reasoning("<|im_start|>assistant\n<think>\n")
    assert not opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert read("hm\n</think>\n\nyes", reasoning=True)[:2] == ("hm", "yes")


def test_a_pure_call_has_no_content():
    assert read(CALL)[3].content is None


def test_the_arguments_are_the_text_that_was_sampled():
    for written in ('{"path":"a"}', '{ "path" : "\\u00e4" }', '{"arguments": {"n": 1.0}}', "{}"):
        _, _, calls, _ = read(f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>')
        assert calls == [(0, "f", written)]


def test_an_end_mark_inside_an_argument_is_part_of_the_argument():
    arguments = json.dumps({"text": "write </tool_call> here"})
    text = f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>'
    assert read(text)[2] == [(0, "f", arguments)]


def test_an_unfinished_argument_with_many_end_marks_is_content():
    text = '<tool_call>{"name": "f", "arguments": {"a": "' + "</tool_call>" * 50
    for at in ((), tuple(range(0, len(text), 7))):
        assert read(text, at=at)[1:3] == (text, [])


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
)
def test_a_malformed_call_is_content(malformed):
    for at in ((), tuple(range(len(malformed)))[:60]):
        _, content, calls, _ = read("Now: " + malformed, at=at)
        assert calls == []
        assert content.replace(" ", "") == ("Now: " + malformed).replace(" ", "")


def test_a_good_call_survives_a_malformed_one_before_it():
    _, content, calls, _ = read(f"<tool_call>oops</tool_call>\n{CALL}")
    assert content == "<tool_call>oops</tool_call>"
    assert [name for _, name, _ in calls] == ["read"]


def test_a_call_without_its_end_mark_is_a_call():
    assert read(CALL.removesuffix("\n</tool_call>"))[2] == [(0, "read", '{"path": "a.txt"}')]


def test_arguments_written_as_a_string_are_the_object_in_it():
    text = '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>'
    assert read(text)[2] == [(0, "f", '{"a": 1}')]


def test_a_llama_response_is_one_call_or_several():
    one = '{"name": "read", "parameters": {"path": "a"}}'
    assert read(one, LLAMA)[1:3] == ("", [(0, "read", '{"path": "a"}')])
    assert len(read(f"<|python_tag|>{one}; {one}\n{one}", LLAMA)[2]) == 3


@pytest.mark.parametrize(
    "text", ['{"a": 1}', "{not json", '{"name": "f", "parameters": {}} and more', "Hi {"]
)
def test_a_llama_response_that_is_not_a_call_is_content(text):
    assert read(text, LLAMA)[1:3] == (text, [])


def test_plain_text_streams_in_the_llama_convention():
    parser = ResponseParser(LLAMA)
    assert parser.push("Hello ") == [TextDelta(text="Hello ")]


def test_without_tools_a_call_is_content():
    assert read(CALL, NO_CALLS)[1:3] == (CALL, [])


@pytest.mark.parametrize("convention", [HERMES, LLAMA])
@pytest.mark.parametrize("reasoning", [False, True])
def test_a_forced_opening_leads_to_the_named_call(convention, reasoning):
    opening = convention.forced_opening("read", reasoning=reasoning)
    _, content, calls, _ = read(opening + '"path": "a"}}', convention, reasoning=reasoning)
    assert (content, calls) == ("", [(0, "read", '{"path": "a"}')])
    opening = convention.forced_opening(None, reasoning=reasoning)
    key = "arguments" if convention is HERMES else "parameters"
    assert read(opening + f'w", "{key}": {{}}}}', convention, reasoning=reasoning)[2] == [(0, "w", "{}")]
    assert NO_CALLS.forced_opening("read", reasoning=reasoning) == ""


pieces = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", CALL, "{", "}", '"', "a", " ", "\n", "<"]
)
responses = st.lists(pieces | st.text(max_size=5), max_size=12).map("".join)
conventions = st.sampled_from([*CONVENTIONS, NO_CALLS])


@given(text=responses, convention=conventions, reasoning=st.booleans(), cuts=cuts)
def test_reading_does_not_depend_on_the_pieces(text, convention, reasoning, cuts):
    whole = read(text, convention, reasoning=reasoning)
    assert read(text, convention, reasoning=reasoning, at=tuple(cuts)) == whole
    assert read(text, convention, reasoning=reasoning, at=tuple(range(len(text)))) == whole


@given(text=responses, convention=conventions)
def test_nothing_but_white_space_and_markup_is_lost(text, convention):
    thought, content, calls, message = read(text, convention)
    assert (message.reasoning or "", message.content or "") == (thought, content)
    told = thought + content + "".join(name + arguments for _, name, arguments in calls)
    if not calls and "<think>" not in text:
        assert "".join(told.split()) == "".join(text.split())
    assert all(isinstance(json.loads(arguments), dict) for _, _, arguments in calls)


@given(
    text=st.text(max_size=40).filter(lambda text: "<" not in text and "{" not in text), convention=conventions
)
def test_plain_text_is_content_to_the_letter(text, convention):
    assert read(text, convention)[:3] == ("", text, [])


@pytest.mark.parametrize("over", [0, 1])
def test_calls_beyond_those_that_have_an_id_are_content(over: int) -> None:
    one = '<tool_call>{"name": "a"}</tool_call>'
    _, content, calls, message = read(one * (MOST_CALLS + over))
    assert len(calls) == len(message.tool_calls) == MOST_CALLS
    assert call_id("0" * 26, calls[-1][0])
    assert content == one * over
