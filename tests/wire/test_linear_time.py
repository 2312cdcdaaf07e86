"""A model's text and a client's JSON cost time in proportion to their length, also token by token."""

from __future__ import annotations

import pytest

from afterwit.core.message import Message, ToolCall
from afterwit.wire.model_text.conventions import CONVENTIONS, NO_CALLS, Convention
from afterwit.wire.model_text.response_parser import ResponseParser
from afterwit.wire.model_text.tool_schema import schema_error
from afterwit.wire.surrogates import without_halves
from tests.timing import check_linear

SIZE = 5_000
"""Characters of the smaller text."""
TOKEN = 3
"""Characters of a streamed piece."""
CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
BEGUN = '<tool_call>{"name": "f", "arguments": {"a": "'
PIECES = (" ", "a", "a ", "<", "{", '"', "<think>", "<think></think>", "<tool_call>", "</tool_call>", CALL)
FRAMES = ("", "a", "<think>", "{", BEGUN, '{"name": "f", "parameters": {"a": "')


@pytest.mark.parametrize("convention", [*CONVENTIONS, NO_CALLS], ids=lambda convention: convention.name)
@pytest.mark.parametrize("token", [TOKEN, SIZE * 10], ids=["streamed", "whole"])
def test_any_response_is_parsed_in_linear_time(convention: Convention, token: int) -> None:
    def read(text: str) -> None:
        parser = ResponseParser(convention)
        for start in range(0, len(text), token):
            parser.push(text[start : start + token])
        parser.finish()

    for piece in PIECES:
        for before in FRAMES:

            def make(size: int, piece: str = piece, before: str = before) -> str:
                return before + piece * (size // len(piece))

            check_linear(read, make, SIZE)


@pytest.mark.parametrize(
    "piece", ["\\", '\\"', "\\ud800", "\\ud800\\udc00", '{"arguments": ', '{"name":"f"};']
)
def test_escapes_and_nested_json_are_read_in_linear_time(piece: str) -> None:
    def read(text: str) -> None:
        without_halves(text)
        call = ToolCall(id="c", name="f", arguments=text)
        message = Message(role="assistant", content=text, tool_calls=(call,))
        schema_error(message, [{"function": {"name": "f", "parameters": {"type": "object"}}}])
        for convention in CONVENTIONS:
            convention.read('{"name": "f", ' + text)
            convention.read(text)
            convention.quotes_end(text)

    check_linear(read, lambda size: piece * (size // len(piece)), 10 * SIZE)
