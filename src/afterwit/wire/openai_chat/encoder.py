"""OpenAI chat's encoders: a stream of server-sent events, or one JSON body."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import orjson

from afterwit.core.errors import RequestError
from afterwit.wire import sse
from afterwit.wire.dialect import Encoder
from afterwit.wire.openai import logprob_objects
from afterwit.wire.openai_chat.chunks import (
    Envelope,
    JsonObject,
    call_deltas,
    delta_choice,
    role_delta,
    text_delta,
    whole_choice,
)
from afterwit.wire.openai_chat.errors import error_body
from afterwit.wire.request import ModelRequest
from afterwit.wire.response import (
    ChoiceDelta,
    ChoiceEnd,
    ReasoningDelta,
    ResponseEvent,
    ResponseHead,
    SentCalls,
    TextDelta,
    Usage,
)

DONE = b"data: [DONE]\n\n"
"""The end of a stream."""


def encoder(request: ModelRequest, head: ResponseHead) -> Encoder:
    """The encoder that the request asks for."""
    return StreamEncoder(request, head) if request.stream else BodyEncoder(request, head)


class StreamEncoder:
    """Server-sent events, one chunk for each delta."""

    content_type = sse.CONTENT_TYPE
    heartbeat = sse.COMMENT

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._head = head
        self._choices = request.choices
        self._include_usage = request.include_usage
        self._envelope = Envelope(head=head, null_usage=request.include_usage)
        self._begun = False
        self._calls: defaultdict[int, SentCalls] = defaultdict(SentCalls)
        """By choice."""
        self._frames: dict[tuple[int, int], sse.Frame] = {}
        """Of chunks that bring content alone, by choice and version."""

    def begin(self, version: int) -> bytes:
        self._begun = True
        return self._sent(version, [delta_choice(choice, role_delta()) for choice in range(self._choices)])

    def delta(self, delta: ChoiceDelta) -> bytes:
        if len(delta.events) == 1 and self._begun and not delta.logprobs:
            event = delta.events[0]
            if type(event) is TextDelta:
                return self._frame(delta.choice, delta.version).around(event.text)
        return self._chunks(delta)

    def _frame(self, choice: int, version: int) -> sse.Frame:
        frame = self._frames.get((choice, version))
        if frame is None:
            content = delta_choice(choice, text_delta(TextDelta(text="")))
            chunk = self._envelope.chunk(version, [content])
            frame = self._frames[choice, version] = sse.Frame.of(sse.event(chunk), "content")
        return frame

    def _chunks(self, delta: ChoiceDelta) -> bytes:
        begun = b"" if self._begun else self.begin(delta.version)
        choices = []
        logprobs = delta.logprobs
        for event in delta.events:
            for added in self._added(delta.choice, event):
                choices.append(delta_choice(delta.choice, added, logprobs=logprobs))
                logprobs = ()
        return begun + self._sent(delta.version, choices)

    def _sent(self, version: int, choices: Sequence[JsonObject]) -> bytes:
        return b"".join(sse.event(self._envelope.chunk(version, [choice])) for choice in choices)

    def end_choice(self, end: ChoiceEnd) -> bytes:
        choice = delta_choice(end.choice, {}, finish=end.finish, logprobs=end.logprobs)
        return sse.event(self._envelope.chunk(end.version, [choice]))

    def end(self, usage: Usage, version: int) -> bytes:
        if not self._include_usage:
            return DONE
        return sse.event(self._envelope.chunk(version, [], usage)) + DONE

    def fail(self, error: RequestError) -> bytes:
        return sse.event(error_body(error))

    def _added(self, choice: int, event: ResponseEvent) -> Iterable[JsonObject]:
        if isinstance(event, TextDelta | ReasoningDelta):
            return (text_delta(event),)
        return call_deltas(event, self._head.call_id(choice, event.index), self._calls[choice])


class BodyEncoder:
    """One JSON body, when everything is complete."""

    content_type = "application/json"
    heartbeat = b""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._envelope = Envelope(head=head)
        self._asked_logprobs = request.logprobs
        self._logprobs: dict[int, list[bytes]] = defaultdict(list)
        """As JSON at once: of all alternatives of many choices the objects take ten times as much, and to
        write them all at the end would stop others for seconds."""
        self._ended: list[ChoiceEnd] = []

    def begin(self, version: int) -> bytes:
        return b""

    def delta(self, delta: ChoiceDelta) -> bytes:
        self._logprobs[delta.choice] += map(orjson.dumps, logprob_objects(delta.logprobs))
        return b""

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._logprobs[end.choice] += map(orjson.dumps, logprob_objects(end.logprobs))
        self._ended.append(end)
        return b""

    def end(self, usage: Usage, version: int) -> bytes:
        choices = [
            whole_choice(end, self._logprobs[end.choice] if self._asked_logprobs else None)
            for end in sorted(self._ended, key=lambda end: end.choice)
        ]
        return orjson.dumps(self._envelope.body(version, choices, usage))

    def fail(self, error: RequestError) -> bytes:
        return orjson.dumps(error_body(error))
