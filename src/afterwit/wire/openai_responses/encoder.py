"""The Responses API's encoders: a stream of named events, or one JSON body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import orjson

from afterwit.core.errors import RequestError
from afterwit.core.turn import Finish
from afterwit.wire import sse
from afterwit.wire.dialect import Encoder
from afterwit.wire.openai_responses.errors import error_body, error_event, failure
from afterwit.wire.openai_responses.output import Output
from afterwit.wire.openai_responses.response import Envelope, status_of
from afterwit.wire.request import ModelRequest
from afterwit.wire.response import (
    CallDelta,
    ChoiceDelta,
    ChoiceEnd,
    ReasoningDelta,
    ResponseHead,
    TextDelta,
    Usage,
)

JsonObject = dict[str, Any]


def encoder(request: ModelRequest, head: ResponseHead) -> Encoder:
    """The encoder that the request asks for."""
    return StreamEncoder(request, head) if request.stream else BodyEncoder(request, head)


class GrowingResponse:
    """A response of one choice, and the events that tell of its growth."""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._envelope = Envelope(
            turn=head.turn, created=head.created, model=head.model, echoed=request.echoed
        )
        self.output = Output(head.turn)
        self._finish = Finish.STOP

    def begin(self) -> Iterator[JsonObject]:
        for state in ("created", "in_progress"):
            yield _of_response(state, self._envelope.object("in_progress"))

    def grow(self, delta: ChoiceDelta) -> Iterator[JsonObject]:
        """Log-probs are told with the first text of a step."""
        logprobs = delta.logprobs
        for event in delta.events:
            yield from self.output.grow(event, logprobs)
            if isinstance(event, TextDelta):
                logprobs = ()

    def end_choice(self, end: ChoiceEnd) -> Iterator[JsonObject]:
        self._finish = end.finish
        yield from self.output.end(end.finish, end.logprobs)

    def whole(self, usage: Usage) -> JsonObject:
        """The response at its end."""
        return self._envelope.object(status_of(self._finish), self.output.items, usage=usage)

    def failed(self, error: RequestError) -> Iterator[JsonObject]:
        yield error_event(error)
        yield _of_response("failed", self._envelope.object("failed", self.output.items, error=failure(error)))


def _of_response(state: str, response: JsonObject) -> JsonObject:
    return {"type": f"response.{state}", "response": response}


class StreamEncoder:
    """Server-sent events, numbered."""

    content_type = sse.CONTENT_TYPE
    heartbeat = sse.COMMENT

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._response = GrowingResponse(request, head)
        self._sent = 0
        self._frames: dict[int, tuple[bytes, sse.Frame]] = {}
        """Of events that add text to an item, by its index: up to the number, then around the text."""

    def begin(self, version: int) -> bytes:
        return self._events(self._response.begin())

    def delta(self, delta: ChoiceDelta) -> bytes:
        output = self._response.output
        if len(delta.events) == 1 and not delta.logprobs and output.only_grows(event := delta.events[0]):
            before, frame = self._frames.get(len(output.items)) or self._frame(delta, event)
            output.add(event.text)
            self._sent += 1
            return before + b"%d" % (self._sent - 1) + frame.around(event.text)
        begun = b"" if self._sent else self.begin(delta.version)
        return begun + self._events(self._response.grow(delta))

    def _frame(self, delta: ChoiceDelta, event: TextDelta | ReasoningDelta) -> tuple[bytes, sse.Frame]:
        (grown,) = self._response.grow(replace(delta, events=(replace(event, text=""),)))
        whole = sse.Frame.of(sse.named_event(_numbered(grown, 0)), "delta")
        before, key, behind = whole.before.partition(b'"sequence_number":')
        frame = before + key, sse.Frame(behind.removeprefix(b"0"), whole.behind)
        self._frames[len(self._response.output.items)] = frame
        return frame

    def end_choice(self, end: ChoiceEnd) -> bytes:
        return self._events(self._response.end_choice(end))

    def end(self, usage: Usage, version: int) -> bytes:
        whole = self._response.whole(usage)
        return self._events([_of_response(whole["status"], whole)])

    def fail(self, error: RequestError) -> bytes:
        return self._events(self._response.failed(error))

    def _events(self, events: Iterable[JsonObject]) -> bytes:
        return b"".join(map(self._event, events))

    def _event(self, event: JsonObject) -> bytes:
        self._sent += 1
        return sse.named_event(_numbered(event, self._sent - 1))


def _numbered(event: JsonObject, number: int) -> JsonObject:
    return {"type": event["type"], "sequence_number": number, **event}


class BodyEncoder:
    """One JSON body, when everything is complete."""

    content_type = "application/json"
    heartbeat = b""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._response = GrowingResponse(request, head)

    def begin(self, version: int) -> bytes:
        return b""

    def delta(self, delta: ChoiceDelta) -> bytes:
        whole = [event for event in delta.events if not isinstance(event, CallDelta)]
        for _ in self._response.grow(replace(delta, events=whole)):
            pass
        return b""

    def end_choice(self, end: ChoiceEnd) -> bytes:
        for _ in self._response.end_choice(end):
            pass
        return b""

    def end(self, usage: Usage, version: int) -> bytes:
        return orjson.dumps(self._response.whole(usage))

    def fail(self, error: RequestError) -> bytes:
        return orjson.dumps(error_body(error))
