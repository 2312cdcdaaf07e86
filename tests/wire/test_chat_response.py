"""OpenAI's answers: chunks, bodies, errors."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from afterwit.core.errors import RequestError
from afterwit.core.message import Message
from afterwit.wire import sse
from afterwit.wire.model_text.tool_calls import Call, Content, Thought
from afterwit.wire.openai_chat.errors import error_body
from afterwit.wire.openai_chat.response import (
    Choice,
    Head,
    TokenLogprob,
    Usage,
    body,
    chunk,
    deltas,
    usage_chunk,
)

HEAD = Head(turn="t", created=12, model="tiny")
COUNTED = Head(turn="t", created=12, model="tiny", counts=True)


def test_a_chunk_names_the_response_its_weights_and_its_place():
    assert chunk(HEAD, 7, 1, {"content": "hi"}) == {
        "id": "chatcmpl-t",
        "object": "chat.completion.chunk",
        "created": 12,
        "model": "tiny",
        "system_fingerprint": "v7",
        "choices": [{"index": 1, "delta": {"content": "hi"}, "logprobs": None, "finish_reason": None}],
    }


def test_usage_is_null_until_the_last_chunk_of_who_asked_for_it():
    assert "usage" not in chunk(HEAD, 0, 0, {})
    assert chunk(COUNTED, 0, 0, {})["usage"] is None
    last = usage_chunk(COUNTED, 0, Usage(prompt=3, completion=4))
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_a_body_holds_whole_choices():
    message = Message(role="assistant", content="hi")
    token = TokenLogprob(text="hé", logprob=-0.5)
    answer = body(
        HEAD,
        7,
        [Choice(index=0, message=message, finish="stop", logprobs=(token,))],
        Usage(prompt=1, completion=1),
    )
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi"},
            "logprobs": {
                "content": [{"token": "hé", "logprob": -0.5, "bytes": [104, 195, 169], "top_logprobs": []}],
                "refusal": None,
            },
            "finish_reason": "stop",
        }
    ]


def test_content_and_thought_are_one_delta_each():
    assert list(deltas(Content(text="a"), str)) == [{"content": "a"}]
    assert list(deltas(Thought(text="b"), str)) == [{"reasoning_content": "b"}]


@given(st.text(max_size=300))
def test_a_call_says_its_id_once_and_its_arguments_in_pieces_with_the_index_always(arguments):
    first, *pieces = [
        delta["tool_calls"][0]
        for delta in deltas(Call(index=2, name="read", arguments=arguments), lambda index: f"call{index}")
    ]
    assert first == {
        "index": 2,
        "id": "call2",
        "type": "function",
        "function": {"name": "read", "arguments": ""},
    }
    assert all(set(piece) == {"index", "function"} and piece["index"] == 2 for piece in pieces)
    assert "".join(piece["function"]["arguments"] for piece in pieces) == arguments


@given(st.dictionaries(st.text(), st.text()))
def test_an_event_is_one_line_whatever_is_said(data):
    event = sse.event(data)
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    assert json.loads(event[6:]) == data


def test_errors_have_openais_shape():
    error = RequestError(400, "context_length_exceeded", "too long", param="messages")
    assert error_body(error) == {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
    kinds = {
        status: error_body(RequestError(status, "x", "y"))["error"]["type"] for status in (401, 429, 500)
    }
    assert kinds == {401: "invalid_request_error", 429: "rate_limit_error", 500: "server_error"}
