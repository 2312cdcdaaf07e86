"""A mark that a model mentions or quotes is text, with the white space around it."""

from __future__ import annotations

import pytest

from afterwit.chat_format.families import CONVENTIONS, Convention, holds_unread_call
from afterwit.chat_format.parse import ResponseParser
from afterwit.chat_format.tool_schema import schema_error
from afterwit.message import Message

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
