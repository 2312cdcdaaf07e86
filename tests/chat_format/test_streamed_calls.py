"""A call's arguments are streamed while they are written, and add up to what is sent whole."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.chat_format.arguments import JsonBeginning
from afterwit.chat_format.families import CONVENTIONS, Convention
from afterwit.chat_format.parse import ResponseParser
from afterwit.dialects.dialect import (
    CallDelta,
    ChoiceDelta,
    ChoiceEnd,
    Dialect,
    ParsedCall,
    ResponseHead,
    Usage,
)
from afterwit.dialects.request import ModelRequest
from afterwit.dialects.table import DIALECTS
from afterwit.turn import Conversation, Finish, Message, Sampling, call_id
from tests.chat_format.families.test_golden import TRANSCRIPTS, at, texts
from tests.chat_format.families.transcripts import TOOLS
from tests.dialects.test_messages_response import events_of
from tests.gateway.responding import folded as responses_folded
from tests.gateway.responding import parse_events
from tests.gateway.serving import folded as chat_folded
from tests.gateway.serving import parse_stream

HEAD = ResponseHead(turn="0" * 26, created=12, model="tiny", prompt_tokens=3)
JSON_FAMILIES = (
    "harmony",
    "deepseek_v3",
    "deepseek_v31",
    "kimi",
    "mistral_args",
    "hermes",
    "llama",
    "llama4",
    "apriel",
    "jamba",
    "nemotron",
    "granite",
)
PYTHON_FAMILIES = ("pythonic", "lfm2", "olmo3")
each = pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda entry: entry.name)


def sent(dialect: Dialect, pieces: list[str], convention: Convention, *, stream: bool) -> bytes:
    """The response to a client that asked for it in a dialect, read from the pieces of a text."""
    request = ModelRequest(
        model="tiny",
        conversation=Conversation(messages=(Message(role="user", content="Hi"),)),
        sampling=Sampling(max_tokens=9),
        stream=stream,
    )
    encoder, parser = dialect.encoder(request, HEAD), ResponseParser(convention, tools=TOOLS)
    steps = [*(parser.push(piece) for piece in pieces), parser.finish()]
    data = b"".join(encoder.delta(ChoiceDelta(choice=0, events=events, version=7)) for events in steps)
    end = ChoiceEnd(
        choice=0,
        message=parser.message(lambda index: call_id(HEAD.turn, index)),
        finish=Finish.STOP,
        stop=None,
        version=7,
    )
    return data + encoder.end_choice(end) + encoder.end(Usage(prompt=3, completion=4), 7)


Said = tuple[str, str, list[tuple[str, str, Any]]]
"""Reasoning, content, and the id, name and arguments of each call."""


def arguments_of(text: str) -> Any:
    """The arguments of a call; None for those that are not whole: no client takes the call for one."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def chat(data: bytes, *, stream: bool) -> Said:
    message = (
        chat_folded(parse_stream(data))[0]["message"] if stream else json.loads(data)["choices"][0]["message"]
    )
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
    return (
        message.get("reasoning_content") or "",
        message["content"] or "",
        [(id, call["name"], arguments_of(call["arguments"])) for id, call in calls],
    )


def responses(data: bytes, *, stream: bool) -> Said:
    items = responses_folded(parse_events(data.decode())) if stream else json.loads(data)["output"]
    texts = {"reasoning": "summary", "message": "content"}
    said = {
        kind: "".join(part["text"] for item in items if item["type"] == kind for part in item[field])
        for kind, field in texts.items()
    }
    calls = [item for item in items if item["type"] == "function_call"]
    assert all(
        (item["status"] == "completed") == bool(arguments_of(item["arguments"]) is not None) for item in calls
    )
    return (
        said["reasoning"],
        said["message"],
        [(item["call_id"], item["name"], arguments_of(item["arguments"])) for item in calls],
    )


def messages(data: bytes, *, stream: bool) -> Said:
    blocks = streamed_blocks(data) if stream else json.loads(data)["content"]
    return (
        "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        "".join(block["text"] for block in blocks if block["type"] == "text"),
        [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
    )


def streamed_blocks(data: bytes) -> list[dict[str, Any]]:
    """The blocks, each call's input parsed from its pieces, or None if they are not whole."""
    blocks: list[dict[str, Any]] = []
    for event in events_of(data):
        match event["type"]:
            case "content_block_start":
                blocks.append({**event["content_block"], "input": ""})
            case "content_block_delta":
                block = blocks[event["index"]]
                for name, piece in event["delta"].items():
                    if name != "type":
                        name = {"partial_json": "input"}.get(name, name)
                        block[name] = block.get(name, "") + piece
    return [{**block, "input": arguments_of(block["input"] or "{}")} for block in blocks]


READ = {"openai_chat": chat, "openai_responses": responses, "anthropic_messages": messages}
FAMILIES = st.sampled_from(CONVENTIONS)


def check(text: str, pieces: list[str], convention: Convention) -> None:
    for dialect in DIALECTS:
        read = READ[dialect.name]
        whole = read(sent(dialect, [text], convention, stream=False), stream=False)
        reasoning, content, calls = read(sent(dialect, pieces, convention, stream=True), stream=True)
        assert (reasoning, content) == whole[:2]
        kept = [call for call in calls if call[2] is not None]
        assert [call[1:] for call in kept] == [call[1:] for call in whole[2]]
        if len(kept) == len(calls):
            assert kept == whole[2]


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=str)
def test_a_streamed_transcript_adds_up_to_what_is_sent_whole(transcript):
    check(transcript.text, list(transcript.text), transcript.convention)


@given(text=texts, convention=FAMILIES, data=st.data())
def test_any_streamed_text_adds_up_to_what_is_sent_whole(text, convention, data):
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    check(text, at(text, *places), convention)
    check(text, list(text), convention)


ROWS = [row for row in TRANSCRIPTS if row.calls and not row.opened]


@given(row=st.sampled_from(ROWS), data=st.data())
def test_a_damaged_call_adds_up_too_and_is_never_whole_before_it_was_read(row, data):
    """Cut, with something put into it, or with something left out: at any place."""
    text = row.text
    begin, end = sorted(data.draw(st.integers(0, len(text))) for _ in range(2))
    put = data.draw(st.sampled_from(["", "}", '"', "{", "<", "\\", '"arguments": {}, ', row.text]))
    damaged = data.draw(
        st.sampled_from([text[:begin], text[:begin] + put + text[end:], text[:end] + put + text[begin:]])
    )
    check(damaged, list(damaged), row.convention)


@each
def test_the_arguments_come_before_the_call_ends(convention: Convention):
    """Letter by letter where they are written as JSON, else with each parameter that is complete."""
    text = next(row.text for row in ROWS if row.convention is convention)
    parser = ResponseParser(convention, tools=TOOLS)
    events = [event for letter in text for event in parser.push(letter)] + parser.finish()
    deltas = [event for event in events if isinstance(event, CallDelta)]
    if convention.name in (*PYTHON_FAMILIES, "mistral") or (
        convention.name == "llama4" and text.lstrip().startswith("[")
    ):
        assert deltas == []
    elif convention.name in JSON_FAMILIES:
        first = next(event for event in events if isinstance(event, ParsedCall))
        told = "".join(delta.arguments for delta in deltas if delta.index == first.index)
        assert told + "}" == first.arguments.rstrip()
    else:
        assert deltas


def test_a_long_text_in_the_arguments_streams_as_it_comes():
    parser = ResponseParser(next(entry for entry in CONVENTIONS if entry.name == "hermes"), tools=TOOLS)
    parser.push('<tool_call>\n{"name": "read", "arguments": {"path": "')
    for _ in range(5):
        (event,) = parser.push("more and more ")
        assert event == CallDelta(index=0, name="read", arguments="more and more ")


def test_a_call_of_an_unknown_tool_is_told_when_it_is_whole():
    parser = ResponseParser(next(entry for entry in CONVENTIONS if entry.name == "hermes"), tools=TOOLS)
    events = [
        event
        for letter in '<tool_call>{"name": "what", "arguments": {"a": 1}}'
        for event in parser.push(letter)
    ]
    assert events == []
    assert parser.finish() == [ParsedCall(index=0, name="what", arguments='{"a": 1}')]


def test_the_anthropic_client_parses_what_there_is_of_a_call_that_was_cut():
    """It parses the arguments with every piece, and raises for text that cannot begin JSON."""
    import anthropic

    hermes = next(entry for entry in CONVENTIONS if entry.name == "hermes")
    text = '<tool_call>{"name": "read", "arguments": {"path": "a\\ud83d", "n": -1.5e3, "b": [tru'
    data = sent(
        next(one for one in DIALECTS if one.name == "anthropic_messages"), list(text), hermes, stream=True
    )
    answer = httpx2.Response(200, content=data, headers={"content-type": "text/event-stream"})
    http = httpx2.Client(transport=httpx2.MockTransport(lambda request: answer))
    client = anthropic.Anthropic(api_key="x", http_client=http)
    with client.messages.stream(
        model="tiny", messages=[{"role": "user", "content": "Hi"}], max_tokens=9
    ) as stream:
        message: Any = stream.get_final_message()
    call, text_block = message.content
    assert call.input["n"] == -1500.0
    assert text_block.text == text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    value=st.dictionaries(st.text(max_size=5), values, max_size=4),
    spaced=st.booleans(),
    ascii=st.booleans(),
    data=st.data(),
)
def test_a_json_object_is_handed_on_but_for_its_last_brace(value, spaced, ascii, data):
    text = json.dumps(value, indent=1 if spaced else None, ensure_ascii=ascii)
    if not ascii and re.search("[\ud800-\udfff]", text):
        return
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    reader = JsonBeginning()
    pieces = [reader.push(piece) for piece in at(text, *places)]
    assert "".join(pieces) + "}" == text or any(len(part) > 60 for part in re.split(r"[\s,:\[\]{}]", text))
    for before, after in pairwise(["", *pieces]):
        assert not before.endswith("\\") or after.startswith("\\") or before.endswith("\\\\")


@given(st.text(alphabet='{}[]",:\\u0d8c1e-. tn\n', max_size=30))
def test_nothing_is_handed_on_that_no_json_begins_with(text):
    """Whatever is handed on can be completed to a JSON object."""
    told = JsonBeginning().push(text)
    assert told == "" or completed(told) is not None


def completed(text: str) -> Any:
    """The object that a beginning becomes with some ending; None if every ending that is tried fails."""
    closing, quoted, escaped = "", False, False
    for sign in text:
        if quoted:
            quoted = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
        elif sign == '"':
            quoted = True
        elif sign in "{[":
            closing = ("}" if sign == "{" else "]") + closing
        elif sign in "}]":
            closing = closing[1:]
    for ending in ("", '"', ":0", '":0', "0", '"":0'):
        try:
            return json.loads(text + ending + closing)
        except json.JSONDecodeError:
            continue
    return None
