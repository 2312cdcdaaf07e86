"""OpenAI chat's responses: streams, bodies, errors."""

from __future__ import annotations

import gc
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from afterwit.dialects.chat import OPENAI_CHAT
from afterwit.dialects.dialect import (
    ChoiceDelta,
    ChoiceEnd,
    Encoder,
    Frame,
    ParsedCall,
    ReasoningDelta,
    ResponseEvent,
    ResponseHead,
    TextDelta,
    TokenLogprob,
    Usage,
    data_event,
)
from afterwit.dialects.request import Field, ModelRequest
from afterwit.errors import RequestError
from afterwit.turn import Conversation, Finish, Message, Sampling, call_id

TURN = "0" * 26
HEAD = ResponseHead(turn=TURN, created=12, model="tiny", prompt_tokens=3)
USAGE = Usage(prompt=3, completion=4)


def encoder(**asked: Any) -> Encoder:
    conversation = Conversation(messages=(Message(role="user", content="Hi"),))
    request = ModelRequest(model="tiny", conversation=conversation, sampling=Sampling(max_tokens=9), **asked)
    return OPENAI_CHAT.encoder(request, HEAD)


def delta(*events: ResponseEvent, choice: int = 0, **more: Any) -> ChoiceDelta:
    return ChoiceDelta(choice=choice, events=events, version=7, **more)


def end(content: str, *, choice: int = 0, **more: Any) -> ChoiceEnd:
    message = Message(role="assistant", content=content)
    return ChoiceEnd(choice=choice, message=message, finish=Finish.STOP, stop=None, version=7, **more)


def objects(data: bytes) -> list[dict[str, Any]]:
    """The JSON objects of a stream's bytes."""
    return [json.loads(line[6:]) for line in data.decode().split("\n\n") if line.startswith("data: {")]


def deltas(data: bytes) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in objects(data) for choice in chunk["choices"]]


def test_a_chunk_names_the_response_its_weights_and_its_choice():
    first, second = objects(encoder(stream=True).delta(delta(TextDelta(text="hi"), choice=1)))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert second == {
        "id": "chatcmpl-" + TURN,
        "object": "chat.completion.chunk",
        "created": 12,
        "model": "tiny",
        "system_fingerprint": "v7",
        "choices": [{"index": 1, "delta": {"content": "hi"}, "logprobs": None, "finish_reason": None}],
    }


def test_usage_is_null_until_the_last_chunk_if_the_client_asked_for_it():
    plain, counted = encoder(stream=True), encoder(stream=True, include_usage=True)
    assert "usage" not in objects(plain.delta(delta()))[0]
    assert plain.end(USAGE, 7) == b"data: [DONE]\n\n"
    assert objects(counted.delta(delta()))[0]["usage"] is None
    (last,) = objects(counted.end(USAGE, 7))
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_a_body_keeps_no_objects_of_its_log_probs():
    """Of many choices and alternatives they took gigabytes, and seconds at the end."""
    whole = encoder(logprobs=True)
    told = TokenLogprob(data=b"told only here", logprob=-0.5, top=[TokenLogprob(data=b"too", logprob=-1.0)])
    whole.delta(delta(TextDelta(text="hi"), logprobs=[told]))
    kept = gc.get_referrers(told)
    assert not any(isinstance(holder, list) for holder in kept)
    whole.end_choice(end("hi"))
    (choice,) = json.loads(whole.end(USAGE, 7))["choices"]
    assert choice["logprobs"]["content"][0]["top_logprobs"][0]["token"] == "too"


def test_a_body_holds_whole_choices_in_their_order():
    whole = encoder(logprobs=True)
    token = TokenLogprob(data="hé".encode(), logprob=-0.5)
    assert whole.end_choice(end("ho", choice=1)) == b""
    assert whole.delta(delta(TextDelta(text="hi"), logprobs=[token])) == b""
    assert whole.end_choice(end("hi")) == b""
    first, second = json.loads(whole.end(USAGE, 7))["choices"]
    assert first == {
        "index": 0,
        "message": {"role": "assistant", "content": "hi"},
        "logprobs": {
            "content": [{"token": "hé", "logprob": -0.5, "bytes": [104, 195, 169], "top_logprobs": []}],
            "refusal": None,
        },
        "finish_reason": "stop",
    }
    assert (second["index"], second["message"]["content"]) == (1, "ho")


def test_log_probs_leave_with_the_first_chunk_behind_which_they_are():
    token = TokenLogprob(data=b"a", logprob=-0.5)
    stream = encoder(stream=True, logprobs=True)
    data = stream.delta(delta(TextDelta(text="a"), TextDelta(text="b"), logprobs=[token]))
    assert [bool(chunk["choices"][0]["logprobs"]) for chunk in objects(data)] == [False, True, False]
    (last,) = objects(stream.end_choice(end("ab", logprobs=[token])))
    assert len(last["choices"][0]["logprobs"]["content"]) == 1


def test_content_and_reasoning_are_one_delta_each():
    data = encoder(stream=True).delta(delta(ReasoningDelta(text="b"), TextDelta(text="a")))
    assert deltas(data)[1:] == [{"reasoning_content": "b"}, {"content": "a"}]


@given(st.text(max_size=300))
def test_a_call_sends_its_id_once_and_its_arguments_in_pieces_with_the_index_always(arguments):
    call = ParsedCall(index=2, name="read", arguments=arguments)
    _, first, *pieces = (
        part["tool_calls"][0] if "tool_calls" in part else part
        for part in deltas(encoder(stream=True).delta(delta(call)))
    )
    assert first == {
        "index": 2,
        "id": call_id(TURN, 2),
        "type": "function",
        "function": {"name": "read", "arguments": ""},
    }
    assert all(set(piece) == {"index", "function"} and piece["index"] == 2 for piece in pieces)
    assert "".join(piece["function"]["arguments"] for piece in pieces) == arguments


@given(st.dictionaries(st.text(), st.text()))
@example({"a": "\u2028", "\u2029": "\x85\u2028"})
def test_an_event_is_one_line_whatever_is_said(data):
    event = data_event(data)
    assert len(event.decode().splitlines()) == 2
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    assert json.loads(event[6:]) == data


@given(st.text(), st.text(), st.text(min_size=1))
@example("\u2028\x85", "", "a")
@example("0", "", '"')
@example("0", '":""', '":""')
@example("0", ":", ':"')
def test_a_frame_around_a_text_is_the_event_with_that_text(text, other, behind):
    def event(said: str) -> bytes:
        return data_event({"name": other, "delta": {"text": said}, "more": behind})

    assert Frame.of(event("")).around(text) == event(text)


def test_errors_have_openais_form_and_its_names_of_the_fields():
    error = RequestError(400, "context_length_exceeded", "too long", param=Field.MESSAGES)
    assert OPENAI_CHAT.error_body(error) == {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
    named = OPENAI_CHAT.error_body(RequestError(400, "invalid_value", "no such token", param=Field.STOP_IDS))
    assert named["error"]["param"] == "stop_token_ids"
    kinds = {
        status: OPENAI_CHAT.error_body(RequestError(status, "x", "y"))["error"]["type"]
        for status in (401, 429, 500)
    }
    assert kinds == {401: "invalid_request_error", 429: "rate_limit_error", 500: "server_error"}
