"""A model's text and a client's JSON cost time in proportion to their length, also token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from afterwit.chat_format.calls import schemas_of
from afterwit.chat_format.families import CONVENTIONS, MISTRAL, MISTRAL_ARGS, NO_CALLS, Convention
from afterwit.chat_format.parse import ResponseParser
from afterwit.chat_format.tool_schema import schema_error
from afterwit.text import without_halves
from afterwit.turn import Message, ToolCall
from tests.chat_format.families.transcripts import TOOLS, golden
from tests.timing import check_linear

SIZE = 1_500
"""Characters of the smaller text."""
TOKEN = 3
"""Characters of a streamed piece."""
QUICK = ("hermes", "qwen_xml", "mistral_args", "harmony", "llama4", "none")
PIECES = (" ", "a ", "{", '"', "[", ",", "<")


def each() -> Iterator[Any]:
    """Each convention, streamed and whole; one for each way of reading is fast."""
    for convention in (*CONVENTIONS, NO_CALLS):
        for how, token in (("streamed", TOKEN), ("whole", 16 * SIZE)):
            marks = () if how == "streamed" and convention.name in QUICK else (pytest.mark.slow,)
            yield pytest.param(convention, token, id=f"{convention.name}-{how}", marks=marks)


@pytest.mark.parametrize(("convention", "token"), each())
def test_any_response_is_parsed_in_linear_time(convention: Convention, token: int) -> None:
    def read(text: str) -> None:
        parser = ResponseParser(convention, tools=TOOLS)
        for start in range(0, len(text), token):
            parser.push(text[start : start + token])
        parser.finish()

    for before in {"", *frames(convention)}:
        for piece in {*PIECES, *convention.marks, *frames(convention)}:

            def make(size: int, piece: str = piece, before: str = before) -> str:
                return before + piece * (size // len(piece))

            check_linear(read, make, SIZE)


@pytest.mark.parametrize(
    "convention", [each for each in CONVENTIONS if each.calls], ids=lambda each: each.name
)
def test_white_space_in_the_head_of_a_call_is_read_in_linear_time(convention: Convention) -> None:
    """As long as the head may go on, each piece has it read again."""

    def read(text: str) -> None:
        parser = ResponseParser(convention, tools=TOOLS)
        for piece in text:
            parser.push(piece)
        parser.finish()

    check_linear(read, lambda size: convention.calls[0].begin + " " * size, 250)


@pytest.mark.parametrize("convention", [MISTRAL, MISTRAL_ARGS], ids=lambda each: each.name)
def test_a_call_whose_id_never_ends_is_read_in_linear_time(convention: Convention) -> None:
    def read(text: str) -> None:
        parser = ResponseParser(convention, tools=TOOLS)
        parser.push(text)
        parser.finish()

    check_linear(read, lambda size: "[TOOL_CALLS]read[CALL_ID]" + " " * size + "x", 2_000)


def frames(convention: Convention) -> set[str]:
    """Reasoning and calls that have begun, and a whole call."""
    if convention is NO_CALLS:
        return {"<think>"}
    begun = convention.forced_opening("read", None)
    thoughts = {thought.begin for thought in convention.thoughts}
    return {begun, begun + golden(convention.name)["ending"], *thoughts}


@pytest.mark.parametrize(
    "piece", ["\\", '\\"', "\\ud800", "\\ud800\\udc00", '{"arguments": ', '{"name":"f"};', "[", "'", '"""']
)
def test_escapes_and_nested_json_are_read_in_linear_time(piece: str) -> None:
    def read(text: str) -> None:
        without_halves(text)
        call = ToolCall(id="c", name="f", arguments=text)
        message = Message(role="assistant", content=text, tool_calls=(call,))
        schema_error(message, [{"function": {"name": "f", "parameters": {"type": "object"}}}])
        for convention in CONVENTIONS:
            for begun in ('{"name": "f", ', "", "f(a=", "[f(a="):
                convention.read(begun + text, schemas_of(TOOLS))
            for call in convention.calls:
                call.quotes_end(text)

    check_linear(read, lambda size: piece * (size // len(piece)), 4 * SIZE)
