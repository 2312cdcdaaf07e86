"""Anthropic's responses: streams, bodies, errors."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.dialects.dialect import (
    ChoiceDelta,
    ChoiceEnd,
    Encoder,
    ParsedCall,
    ReasoningDelta,
    ResponseEvent,
    ResponseHead,
    TextDelta,
    Usage,
    named_event,
)
from afterwit.dialects.messages import ANTHROPIC_MESSAGES
from afterwit.dialects.request import Field, ModelRequest
from afterwit.errors import PromptTooLong, RequestError
from afterwit.turn import Conversation, Finish, Message, Sampling, turn_of_call

TURN = "0" * 26
HEAD = ResponseHead(turn=TURN, created=12, model="tiny", prompt_tokens=3)
USAGE = Usage(prompt=3, completion=4, cached=2)
READ = ParsedCall(index=0, name="read", arguments='{"path": "notes/' + "x" * 100 + '"}')
WROTE = ParsedCall(index=1, name="write", arguments="{}")


def encoder(*, stream: bool, show_reasoning: bool = True) -> Encoder:
    request = ModelRequest(
        model="tiny",
        conversation=Conversation(messages=(Message(role="user", content="Hi"),)),
        sampling=Sampling(max_tokens=9),
        stream=stream,
        show_reasoning=show_reasoning,
    )
    return ANTHROPIC_MESSAGES.encoder(request, HEAD)


def encoded(
    *events: ResponseEvent, finish: Finish = Finish.STOP, stop: str | None = None, **asked: Any
) -> bytes:
    """A whole response of these events, each in a delta of its own."""
    made = encoder(**asked)
    data = b"".join(made.delta(ChoiceDelta(choice=0, events=(event,), version=7)) for event in events)
    message = Message(role="assistant", content="")
    data += made.end_choice(ChoiceEnd(choice=0, message=message, finish=finish, stop=stop, version=7))
    return data + made.end(USAGE, 7)


def events_of(data: bytes) -> list[dict[str, Any]]:
    """The objects of a stream. Each event is named after its object's type."""
    found = []
    for event in data.decode().split("\n\n")[:-1]:
        name, line = event.split("\n")
        found.append(json.loads(line.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def added_up(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream adds up to, checked for its order."""
    start, *events, last = (event for event in events if event["type"] != "ping")
    assert (start["type"], last) == ("message_start", {"type": "message_stop"})
    message, open_block, pieces = start["message"], None, ""
    for event in events:
        if event["type"] == "content_block_start":
            assert (open_block, event["index"]) == (None, len(message["content"]))
            open_block, pieces = event["content_block"], ""
            message["content"].append(open_block)
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            kind = delta.pop("type")
            if kind == "input_json_delta":
                pieces += delta["partial_json"]
                continue
            for name, piece in delta.items():
                open_block[name] += piece
        elif event["type"] == "content_block_stop":
            if open_block["type"] == "tool_use":
                open_block["input"] = json.loads(pieces)
            open_block = None
        else:
            assert (event["type"], open_block) == ("message_delta", None)
            message |= event["delta"]
            message["usage"] |= event["usage"]
    return message


def test_a_stream_has_anthropics_events_in_their_order():
    data = encoded(
        ReasoningDelta(text="Hm"), TextDelta(text="Hel"), TextDelta(text="lo"), READ, WROTE, stream=True
    )
    types = [event["type"].removeprefix("content_block_") for event in events_of(data)]
    assert types == [
        *("message_start", "ping"),
        *("start", "delta", "delta", "stop"),
        *("start", "delta", "delta", "stop"),
        *("start", "delta", "delta", "stop"),
        *("start", "delta", "stop"),
        *("message_delta", "message_stop"),
    ]


EVENTS = st.lists(
    st.builds(TextDelta, text=st.text(min_size=1, max_size=4))
    | st.builds(ReasoningDelta, text=st.text(min_size=1, max_size=4))
    | st.sampled_from([READ, WROTE]),
    max_size=8,
)


@given(EVENTS)
def test_a_stream_has_the_same_bytes_whether_events_come_one_by_one_or_together(events):
    together = encoder(stream=True)
    data = together.delta(ChoiceDelta(choice=0, events=events, version=7))
    one_by_one = encoder(stream=True)
    pieces = [one_by_one.delta(ChoiceDelta(choice=0, events=(), version=7))]
    pieces += [one_by_one.delta(ChoiceDelta(choice=0, events=(event,), version=7)) for event in events]
    assert b"".join(pieces) == data


def test_a_stream_begins_with_the_tokens_of_the_prompt():
    (start, _) = events_of(encoder(stream=True).delta(ChoiceDelta(choice=0, events=(), version=7)))
    message = start["message"]
    assert message["usage"]["input_tokens"] == 3
    assert (message["id"], message["role"], message["model"]) == ("msg_" + TURN, "assistant", "tiny")
    assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None)


@given(events=EVENTS, shown=st.booleans())
def test_a_stream_adds_up_to_the_body_of_the_same_events(events, shown):
    events = [TextDelta(text="x"), *events]
    body = json.loads(encoded(*events, stream=False, show_reasoning=shown))
    assert added_up(events_of(encoded(*events, stream=True, show_reasoning=shown))) == body


def test_a_body_has_a_block_for_each_thing_that_was_said():
    body = json.loads(
        encoded(
            ReasoningDelta(text="Hm"), TextDelta(text="Yes"), READ, finish=Finish.TOOL_CALLS, stream=False
        )
    )
    thought, said, called = body["content"]
    assert (thought["thinking"], said) == ("Hm", {"type": "text", "text": "Yes"})
    assert base64.b64decode(thought["signature"], validate=True)
    assert called["input"] == json.loads(READ.arguments)
    assert called["id"].isalnum()
    assert called["id"].startswith("toolu")
    assert turn_of_call(called["id"]) == TURN
    assert body["usage"] == {
        "input_tokens": 1,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 2,
        "output_tokens": 4,
    }


@pytest.mark.parametrize(
    ("finish", "stop", "reason"),
    [
        (Finish.STOP, None, "end_turn"),
        (Finish.STOP, "END", "stop_sequence"),
        (Finish.LENGTH, None, "max_tokens"),
        (Finish.TOOL_CALLS, None, "tool_use"),
        (Finish.TOOL_CALLS, "END", "tool_use"),
    ],
)
def test_a_response_says_why_it_ended(finish, stop, reason):
    body = json.loads(encoded(TextDelta(text="x"), finish=finish, stop=stop, stream=False))
    matched = stop if reason == "stop_sequence" else None
    assert (body["stop_reason"], body["stop_sequence"]) == (reason, matched)


def test_reasoning_that_nobody_asked_for_is_not_sent():
    hidden = [ReasoningDelta(text="Hm")] * 200
    data = encoded(*hidden, TextDelta(text="Yes"), stream=True, show_reasoning=False)
    assert added_up(events_of(data))["content"] == [{"type": "text", "text": "Yes"}]


def test_arguments_of_any_depth_and_with_half_a_character_are_sent():
    deep = ParsedCall(index=0, name="f", arguments='{"a": ' + "[" * 500 + "]" * 500 + ', "b": "\\ud83d"}')
    body = json.loads(encoded(deep, stream=False))
    assert body["content"][0]["input"]["b"] == "\ufffd"
    pieces = [
        event["delta"]["partial_json"]
        for event in events_of(encoded(deep, stream=True))
        if event["type"] == "content_block_delta"
    ]
    assert json.loads("".join(pieces)) == body["content"][0]["input"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (408, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_errors_have_anthropics_types(status, kind):
    body = ANTHROPIC_MESSAGES.error_body(RequestError(status, "x", "No."))
    assert body == {"type": "error", "error": {"type": kind, "message": "No."}}


def test_a_prompt_that_does_not_fit_is_refused_in_the_words_that_clients_look_for():
    counted = PromptTooLong(2049, 2048, param=Field.MESSAGES)
    by_the_engine = RequestError(400, "context_length_exceeded", "No room.")
    for error, words in ((counted, "2049 tokens > 2048 maximum"), (by_the_engine, "No room.")):
        body = ANTHROPIC_MESSAGES.error_body(error)
        assert body["error"]["message"] == f"prompt is too long: {words}"


def test_a_fault_inside_a_stream_is_its_last_event():
    error = RequestError(500, "x", "No.")
    assert encoder(stream=True).fail(error) == named_event(ANTHROPIC_MESSAGES.error_body(error))
    assert json.loads(encoder(stream=False).fail(error)) == ANTHROPIC_MESSAGES.error_body(error)
