"""A schema decides only about calls that failed: results as real clients and tools word them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.judging.unvoted import failed, without_answered_calls
from afterwit.turn import Message, ToolCall, call_id

TURN = "01m0000000abcdefghjkmnpqrs"

REFUSALS = [
    "Error: File not found",
    "error: no such file\n",
    "<tool_use_error>InputValidationError: Read failed due to the following issue:\n"
    "The parameter `offset` type is expected as `number` but provided as `null`</tool_use_error>",
    "Error\n<tool_use_error>String to replace not found in file.</tool_use_error>",
    'The bash tool was called with invalid arguments: [{"path":["timeout"]}].\n'
    "Please rewrite the input so it satisfies the expected schema.",
    "failed to parse function arguments: missing field `command` at line 1 column 2",
    "Validation failed for tool \"read\":\n  - path: must have required property 'path'",
    '{"error": "Tool \'reed\' does not exist"}',
    '{"success": false, "message": "the host did not answer"}',
    '{"status": "error", "output": ""}',
    "Tool 'reed' does not exist. Available tools: read, write",
    "Tool call error: none was made.",
    "An error occurred while running the tool. Please try again. Error: 'path'",
    "Error executing tool read: 1 validation error for readArguments\npath\n  Field required",
    "1 validation error for read: Fix the errors and try again.",
    "reed is not a valid tool, try one of [read, write].",
    "MCP error -32602: Invalid arguments for tool read",
    "Traceback (most recent call last):\n  File ...",
    "ValueError: 'x' is not a number",
    "read() got an unexpected keyword argument 'mode'",
    "read() missing 1 required positional argument: 'path'",
    "Unknown tool: reed",
    "[error] the tool timed out",
]
ANSWERS = [
    "",
    "ok",
    "(no output)",
    "hello-from-tool",
    '{"result": 3, "error": null}',
    '{"errors": [], "data": {"name": "Ada"}}',
    '{"success": true, "note": "no error"}',
    "def test_errors():\n    raise ValueError('failed')\n",
    "errors.py\nexceptions.py\ninvalid.txt",
    "error_handler.go: 12 lines",
    "3 errors were found in the log: two of them are old.",
    "# Error handling\nEvery command returns a code.",
    "exit code: 1",
    "12 degrees, and it may rain. The forecast failed yesterday.",
    "{not json at all",
]


@pytest.mark.parametrize("result", REFUSALS)
def test_a_result_that_tells_of_a_failure_is_one(result: str):
    assert failed(result)


@pytest.mark.parametrize("result", ANSWERS)
def test_a_result_that_only_speaks_of_errors_is_none(result: str):
    assert not failed(result)


def made(count: int) -> Message:
    calls = tuple(ToolCall(id=call_id(TURN, at), name=f"t{at}", arguments="{}") for at in range(count))
    return Message(role="assistant", content="Let me look.", tool_calls=calls)


def result(content: str, id: str | None) -> Message:
    return Message(role="tool", content=content, tool_call_id=id)


def left(response: Message, *next_state: Message) -> list[str]:
    said = without_answered_calls(response, next_state)
    assert said.content == response.content
    return [call.name for call in said.tool_calls]


def test_each_call_has_its_own_result():
    two = made(2)
    first, second = (call.id for call in two.tool_calls)
    assert left(two, result("Error: no", second), result("fine", first)) == ["t1"]
    assert left(two, result("fine", second)) == ["t0"], "nothing came back for the first"
    assert left(two) == ["t0", "t1"]
    assert left(two, Message(role="user", content="Perfect, thank you!")) == ["t0", "t1"]


def test_results_under_ids_of_the_client_are_taken_in_order():
    assert left(made(2), result("Error: no", "call_1"), result("fine", "call_2")) == ["t0"]
    assert left(made(1), result("fine", None)) == []
    underscored = result("fine", f"call_{call_id(TURN, 0)[4:]}".upper())
    assert left(made(1), underscored) == []


def test_a_result_under_a_persons_name_is_a_result():
    observed = Message(role="user", content="Call id: x1\nObservation:\n21 degrees")
    assert left(made(1), observed) == []
    wrong = Message(role="user", content="Observation:\nError: there is no such city")
    assert left(made(1), wrong) == ["t0"]


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.randoms())
def test_exactly_the_calls_that_failed_are_left(bad: list[bool], rng):
    response = made(len(bad))
    told = [
        result("Error: it broke" if one else "fine", call.id)
        for one, call in zip(bad, response.tool_calls, strict=True)
    ]
    rng.shuffle(told)
    assert left(response, *told) == [f"t{at}" for at, one in enumerate(bad) if one]
