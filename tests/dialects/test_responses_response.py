"""The Responses API's streams."""

from __future__ import annotations

import json
from typing import Any

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
)
from afterwit.dialects.request import ModelRequest
from afterwit.dialects.responses import OPENAI_RESPONSES
from afterwit.turn import Conversation, Finish, Message, Sampling

HEAD = ResponseHead(turn="0" * 26, created=12, model="tiny", prompt_tokens=3)


def encoder() -> Encoder:
    conversation = Conversation(messages=(Message(role="user", content="Hi"),))
    request = ModelRequest(
        model="tiny", conversation=conversation, sampling=Sampling(max_tokens=9), stream=True
    )
    return OPENAI_RESPONSES.encoder(request, HEAD)


def delta(*events: ResponseEvent) -> ChoiceDelta:
    return ChoiceDelta(choice=0, events=events, version=7)


def rest(stream: Encoder) -> bytes:
    end = ChoiceEnd(
        choice=0,
        message=Message(role="assistant", content=""),
        finish=Finish.STOP,
        stop=None,
        version=7,
    )
    return stream.end_choice(end) + stream.end(Usage(prompt=3, completion=4), 7)


def events_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.split("\ndata: ")[1]) for event in data.decode().split("\n\n")[:-1]]


EVENTS = st.lists(
    st.builds(TextDelta, text=st.text(min_size=1, max_size=4))
    | st.builds(ReasoningDelta, text=st.text(min_size=1, max_size=4))
    | st.just(ParsedCall(index=0, name="read", arguments="{}")),
    max_size=8,
)


@given(EVENTS)
def test_a_stream_has_the_same_bytes_whether_events_come_one_by_one_or_together(events):
    together, one_by_one = encoder(), encoder()
    whole = together.delta(delta()) + together.delta(delta(*events)) + rest(together)
    pieces = [one_by_one.delta(delta()), *(one_by_one.delta(delta(event)) for event in events)]
    assert b"".join(pieces) + rest(one_by_one) == whole


@given(EVENTS)
def test_the_events_of_a_stream_are_numbered_without_a_gap(events):
    stream = encoder()
    data = b"".join(stream.delta(delta(event)) for event in [TextDelta(text="a"), *events])
    numbers = [event["sequence_number"] for event in events_of(data + rest(stream))]
    assert numbers == list(range(len(numbers)))


def test_text_deltas_add_up_to_the_text_that_is_done():
    stream = encoder()
    data = b"".join(stream.delta(delta(TextDelta(text=text))) for text in ("It ", "is", ' "it"'))
    events = events_of(data + rest(stream))
    said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    (done,) = (event["text"] for event in events if event["type"] == "response.output_text.done")
    assert said == done == 'It is "it"'
