"""Anthropic's encoders: a stream of named events, or one JSON body."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson

from afterwit.core.errors import RequestError
from afterwit.core.turn import Finish
from afterwit.wire import sse
from afterwit.wire.anthropic_messages.blocks import TEXT_BLOCKS, BlockIds, BlockStream, whole_blocks
from afterwit.wire.anthropic_messages.errors import error_body
from afterwit.wire.dialect import Encoder
from afterwit.wire.request import ModelRequest
from afterwit.wire.response import (
    ChoiceDelta,
    ChoiceEnd,
    ReasoningDelta,
    ResponseEvent,
    ResponseHead,
    TextDelta,
    Usage,
)

JsonObject = dict[str, Any]

ID_PREFIX = "msg_"
STOP_REASONS = {Finish.STOP: "end_turn", Finish.LENGTH: "max_tokens", Finish.TOOL_CALLS: "tool_use"}
PING: JsonObject = {"type": "ping"}


def encoder(request: ModelRequest, head: ResponseHead) -> Encoder:
    """The encoder that the request asks for."""
    return StreamEncoder(request, head) if request.stream else BodyEncoder(request, head)


class StreamEncoder:
    """Server-sent events, each named after its type."""

    content_type = sse.CONTENT_TYPE
    heartbeat = sse.named_event(PING)

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._head = head
        self._show_reasoning = request.show_reasoning
        self._blocks = BlockStream(BlockIds(head=head))
        self._begun = False
        self._frames: dict[int, sse.Frame] = {}
        """Of events that add text to a block, by its index."""
        self._stop: JsonObject = {}

    def begin(self, version: int) -> bytes:
        self._begun = True
        return _sent([_start(self._head), PING])

    def delta(self, delta: ChoiceDelta) -> bytes:
        if len(delta.events) == 1 and self._blocks.only_grows(event := delta.events[0]):
            return self._frame(event).around(event.text)
        begun = b"" if self._begun else self.begin(delta.version)
        shown = (
            event for event in delta.events if self._show_reasoning or not isinstance(event, ReasoningDelta)
        )
        return begun + _sent(added for event in shown for added in self._blocks.grow(event))

    def _frame(self, event: TextDelta | ReasoningDelta) -> sse.Frame:
        frame = self._frames.get(self._blocks.index)
        if frame is None:
            (added,) = self._blocks.grow(replace(event, text=""))
            frame = sse.Frame.of(sse.named_event(added), TEXT_BLOCKS[type(event)])
            self._frames[self._blocks.index] = frame
        return frame

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._stop = _stop(end)
        return _sent(self._blocks.close())

    def end(self, usage: Usage, version: int) -> bytes:
        delta = {"type": "message_delta", "delta": self._stop, "usage": _usage(usage)}
        return _sent([delta, {"type": "message_stop"}])

    def fail(self, error: RequestError) -> bytes:
        return sse.named_event(error_body(error))


class BodyEncoder:
    """One JSON body, when everything is complete."""

    content_type = "application/json"
    heartbeat = b""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._head = head
        self._show_reasoning = request.show_reasoning
        self._events: list[ResponseEvent] = []
        self._stop: JsonObject = {}

    def begin(self, version: int) -> bytes:
        return b""

    def delta(self, delta: ChoiceDelta) -> bytes:
        self._events += delta.events
        return b""

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._stop = _stop(end)
        return b""

    def end(self, usage: Usage, version: int) -> bytes:
        shown = (e for e in self._events if self._show_reasoning or not isinstance(e, ReasoningDelta))
        content = whole_blocks(shown, BlockIds(head=self._head))
        return orjson.dumps(_message(self._head, content, self._stop, usage))

    def fail(self, error: RequestError) -> bytes:
        return orjson.dumps(error_body(error))


def _sent(events: Iterable[JsonObject]) -> bytes:
    return b"".join(sse.named_event(event) for event in events)


def _start(head: ResponseHead) -> JsonObject:
    stop = {"stop_reason": None, "stop_sequence": None}
    usage = Usage(prompt=head.prompt_tokens, completion=0)
    return {"type": "message_start", "message": _message(head, [], stop, usage)}


def _message(head: ResponseHead, content: list[JsonObject], stop: JsonObject, usage: Usage) -> JsonObject:
    return {
        "id": ID_PREFIX + head.turn,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        **stop,
        "usage": _usage(usage),
    }


def _stop(end: ChoiceEnd) -> JsonObject:
    """Why the response ended; the matched string only if it is the reason."""
    if end.finish is Finish.STOP and end.stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": end.stop}
    return {"stop_reason": STOP_REASONS[end.finish], "stop_sequence": None}


def _usage(usage: Usage) -> JsonObject:
    """The counts. Nothing is counted as cached: the sum of all inputs is the prompt."""
    return {
        "input_tokens": usage.prompt,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": usage.completion,
    }
