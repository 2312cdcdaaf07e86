"""A mark that a model mentions or quotes is text, with the white space around it."""

from __future__ import annotations

import json

import pytest

from afterwit.chat_format.families import CONVENTIONS, Convention
from afterwit.chat_format.parse import ResponseParser, holds_unread_call
from afterwit.chat_format.tool_schema import schema_error
from afterwit.turn import Message

MARKED = [one for one in CONVENTIONS if one.calls and one.grammar == "marks"]
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'
HERMES = next(one for one in CONVENTIONS if one.name == "hermes")


def read(text: str, convention: Convention, step: int) -> Message:
    parser = ResponseParser(convention, tools=(TOOL,))
    for at in range(0, len(text), step):
        parser.push(text[at : at + step])
    parser.finish()
    return parser.message(lambda index: f"c{index}")


PROSE = [
    "The mark {begin} opens a call.",
    "It is written\n\n  {begin}\n\nand then comes the call.",
    "Models write `{begin}` first, then JSON",
    'It begins with "{begin}", a mark of its own.',
    "A call stands between {begin} and {end}.",
    "The mark is {begin}.",
    "Use {begin} tags",
]


@pytest.mark.parametrize("convention", MARKED, ids=lambda one: one.name)
@pytest.mark.parametrize("prose", PROSE)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_mark_that_is_mentioned_is_text(convention, prose, step):
    marks = convention.calls[0]
    text = prose.format(begin=marks.begin, end=marks.end or "the end")
    said = read(text, convention, step)
    assert (said.content, said.tool_calls) == (text, ())
    assert schema_error(said, (TOOL,)) is None


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_call_after_a_mention_of_its_mark_is_a_call(step):
    said = read(f"I write `<tool_call>` and call.\n{CALL}", HERMES, step)
    assert (said.content, len(said.tool_calls)) == ("I write `<tool_call>` and call.", 1)


CALLS = {
    "hermes": CALL,
    "qwen_xml": "<tool_call>\n<function=read>\n<parameter=path>\na.txt\n</parameter>\n</function>\n"
    "</tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="read">\n<parameter name="path">a.txt</parameter>\n'
    "</invoke>\n</minimax:tool_call>",
    "glm": "<tool_call>read<arg_key>path</arg_key><arg_value>a.txt</arg_value></tool_call>",
    "mistral": '[TOOL_CALLS] [{"name": "read", "arguments": {"path": "a.txt"}}]',
    "mistral_args": '[TOOL_CALLS]read[ARGS]{"path": "a.txt"}',
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
    '{"path": "a.txt"}<|tool_call_end|><|tool_calls_section_end|>',
    "deepseek_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>"
    '{"path": "a.txt"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "jamba": '<tool_calls>[{"name": "read", "arguments": {"path": "a.txt"}}]</tool_calls>',
    "granite": '<|tool_call|>[{"name": "read", "arguments": {"path": "a.txt"}}]',
    "lfm2": '<|tool_call_start|>[read(path="a.txt")]<|tool_call_end|>',
    "olmo3": '<function_calls>\nread(path="a.txt")\n</function_calls>',
    "gemma": '<|tool_call>call:read{path:<|"|>a.txt<|"|>}<tool_call|>',
}
"""One call of each notation."""
calling = pytest.mark.parametrize(
    "convention", [one for one in MARKED if one.name in CALLS], ids=lambda one: one.name
)


@calling
@pytest.mark.parametrize("step", [1, 1000])
def test_a_real_call_after_a_mentioned_mark_is_the_only_call(convention, step):
    mark = convention.calls[0].begin
    for prose in (f"I  write `{mark}` first. Now:", f"The {mark} mark.", f"{mark}, and\n\n{mark}!"):
        said = read(f"{prose}\n\n{CALLS[convention.name]}", convention, step)
        assert (said.content, [call.name for call in said.tool_calls]) == (prose, ["read"])


@calling
@pytest.mark.parametrize("step", [1, 1000])
def test_a_call_in_code_is_an_example(convention, step):
    call = CALLS[convention.name]
    line = call.replace("\n", "")
    for text in (
        f"Write this:\n\n```xml\n{call}\n```\n\nNothing else.",
        f"1. This:\n   ~~~\n   {call}\n   ~~~",
        f"Write `{line}` to read.",
        f"```\n{call}\n{call}```",
    ):
        said = read(text, convention, step)
        assert (said.content, said.tool_calls) == (text, ())
        assert schema_error(said, (TOOL,)) is None


@calling
@pytest.mark.parametrize("step", [1, 1000])
def test_a_call_after_code_or_in_code_that_never_ends_is_a_call(convention, step):
    call = CALLS[convention.name]
    for prose in ("Run:\n```sh\nls\n```", "```", "It`s time."):
        said = read(f"{prose}\n{call}\n{call}", convention, step)
        assert (said.content, len(said.tool_calls)) == (prose, 2)


@pytest.mark.parametrize("step", [7, 100_000])
@pytest.mark.parametrize("opening", ["```\n", "It`s time. "])
def test_many_calls_in_code_that_never_ends_keep_their_order(opening, step):
    paths = [f"{number}.txt" for number in range(300)]
    said = read(opening + "".join(CALL.replace("a.txt", path) for path in paths) + "\nDone.", HERMES, step)
    assert [json.loads(call.arguments)["path"] for call in said.tool_calls] == paths
    assert said.content == opening.strip() + "\nDone."


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("name", ["kimi", "deepseek_v31"])
def test_the_mark_around_all_calls_is_text_where_there_is_no_call(name, step):
    convention = next(one for one in MARKED if one.name == name)
    for begin in convention.wrappers:
        for text in (f"The mark `{begin}`  is first.", f"First {begin}", f"{begin}\n {begin} is it"):
            assert read(text, convention, step).content == text
        many = f"{begin} " * 200
        assert read(many + "end", convention, step).content == many + "end"


@pytest.mark.parametrize(
    "content",
    [
        '<tool_call>\n{"name": "read", "arg',
        "Let me look. <tool_call>{'name'",
        "<tool_call>read\n<arg_key>path",
        "<tool_call><function=read>",
        "<tool_call>rea",
        "[TOOL_CALLS]read{",
    ],
)
def test_a_call_that_was_begun_is_one_that_could_not_be_read(content):
    assert holds_unread_call(content)


def test_code_that_never_ends_hides_no_call_that_could_not_be_read():
    broken = '<tool_call>\n{"name": "read", "arg'
    assert holds_unread_call(f"```\n{broken}")
    assert holds_unread_call(f"It`s time {broken}`")
    assert not holds_unread_call(f"```\n{broken}```")
    assert holds_unread_call(f"```\n{broken}\n```\n{broken}")
