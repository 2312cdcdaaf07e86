"""Anthropic's Messages API: its output, a stream of named events or a JSON body, and its errors."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import TypeGuard

import orjson

from afterwit.dialects import sse
from afterwit.dialects.dialect import BodyEncoder, Encoder, JsonObject
from afterwit.dialects.request import ModelRequest
from afterwit.dialects.response import (
    CallDelta,
    ChoiceDelta,
    ChoiceEnd,
    ParsedCall,
    ReasoningDelta,
    ResponseEvent,
    ResponseHead,
    SentCalls,
    TextDelta,
    Usage,
    in_pieces,
)
from afterwit.errors import RequestError
from afterwit.ids import with_prefix
from afterwit.text import without_halves
from afterwit.turn import Finish

PING: JsonObject = {"type": "ping"}

STOP_REASONS = {Finish.STOP: "end_turn", Finish.LENGTH: "max_tokens", Finish.TOOL_CALLS: "tool_use"}

CALL_PREFIX = "toolu"

TEXT_BLOCKS: Mapping[type[ResponseEvent], str] = {TextDelta: "text", ReasoningDelta: "thinking"}
"""The type of the block that an event adds text to; the block's text field has the same name."""

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Error types of single statuses."""

TOO_LONG = "prompt is too long: "
"""Clients compact the conversation if the message contains these words."""


def encoder(request: ModelRequest, head: ResponseHead) -> Encoder:
    return StreamEncoder(request, head) if request.stream else WholeEncoder(request, head)


class StreamEncoder:
    """Server-sent events, each named after its type."""

    content_type = sse.CONTENT_TYPE
    heartbeat = sse.named_event(PING)

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._head = head
        self._show_reasoning = request.show_reasoning
        self._blocks = BlockStream(head)
        self._begun = False
        self._frames: dict[int, sse.Frame] = {}
        """Events that add text to a block, by its index."""
        self._stop: JsonObject = {}

    def begin(self, version: int) -> bytes:
        self._begun = True
        stop = {"stop_reason": None, "stop_sequence": None}
        message = _message(self._head, [], stop, Usage(prompt=self._head.prompt_tokens, completion=0))
        return _sent([{"type": "message_start", "message": message}, PING])

    def delta(self, delta: ChoiceDelta) -> bytes:
        if len(delta.events) == 1 and self._blocks.only_grows(event := delta.events[0]):
            frame = self._frames.get(self._blocks.index)
            if frame is None:
                (added,) = self._blocks.grow(replace(event, text=""))
                frame = sse.Frame.of(sse.named_event(added), TEXT_BLOCKS[type(event)])
                self._frames[self._blocks.index] = frame
            return frame.around(event.text)
        begun = b"" if self._begun else self.begin(delta.version)
        shown = _shown(delta.events, reasoning=self._show_reasoning)
        return begun + _sent(added for event in shown for added in self._blocks.grow(event))

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._stop = _stop(end)
        return _sent(self._blocks.close())

    def end(self, usage: Usage, version: int) -> bytes:
        delta = {"type": "message_delta", "delta": self._stop, "usage": _usage(usage)}
        return _sent([delta, {"type": "message_stop"}])

    def fail(self, error: RequestError) -> bytes:
        return sse.named_event(error_body(error))


def _sent(events: Iterable[JsonObject]) -> bytes:
    return b"".join(map(sse.named_event, events))


class WholeEncoder(BodyEncoder):
    """One JSON body."""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        super().__init__(error_body)
        self._head = head
        self._show_reasoning = request.show_reasoning
        self._events: list[ResponseEvent] = []
        self._stop: JsonObject = {}

    def delta(self, delta: ChoiceDelta) -> bytes:
        self._events += _shown(delta.events, reasoning=self._show_reasoning)
        return b""

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._stop = _stop(end)
        return b""

    def end(self, usage: Usage, version: int) -> bytes:
        content = _whole_blocks(self._events, self._head)
        return orjson.dumps(_message(self._head, content, self._stop, usage))


def _shown(events: Iterable[ResponseEvent], *, reasoning: bool) -> Iterator[ResponseEvent]:
    return (event for event in events if reasoning or not isinstance(event, ReasoningDelta))


def _message(head: ResponseHead, content: list[JsonObject], stop: JsonObject, usage: Usage) -> JsonObject:
    return {
        "id": f"msg_{head.turn}",
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        **stop,
        "usage": _usage(usage),
    }


def _stop(end: ChoiceEnd) -> JsonObject:
    """The reason of the end; the matched string only if it is the reason."""
    if end.finish is Finish.STOP and end.stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": end.stop}
    return {"stop_reason": STOP_REASONS[end.finish], "stop_sequence": None}


def _usage(usage: Usage) -> JsonObject:
    """The counts. No tokens are reported as cached: the sum of all inputs is the prompt."""
    return {
        "input_tokens": usage.prompt,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": usage.completion,
    }


def _call_id(head: ResponseHead, call: CallDelta | ParsedCall) -> str:
    return with_prefix(CALL_PREFIX, head.call_id(0, call.index))


def _signature(head: ResponseHead) -> str:
    """The signature of a thinking block. Clients drop thoughts without one, or return them as text."""
    return base64.b64encode(head.turn.encode()).decode()


class BlockStream:
    """The events of a growing content. One block is open at a time."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._calls = SentCalls()
        self._open: str | None = None
        """The type of the open block."""
        self.index = -1
        """The index of the block that was opened last."""

    def only_grows(self, event: ResponseEvent) -> TypeGuard[TextDelta | ReasoningDelta]:
        """Whether the event only adds text to the open block."""
        return self._open is not None and self._open == TEXT_BLOCKS.get(type(event))

    def grow(self, event: ResponseEvent) -> Iterator[JsonObject]:
        """The events that add a response event. A call is a block of its own."""
        match event:
            case TextDelta(text=text):
                yield from self._enter({"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            case ReasoningDelta(text=text):
                yield from self._enter({"type": "thinking", "thinking": "", "signature": ""})
                yield self._delta({"type": "thinking_delta", "thinking": text})
            case CallDelta() | ParsedCall():
                begins, arguments = self._calls.add(event)
                if begins:
                    yield from self.close()
                    id = _call_id(self._head, event)
                    yield from self._enter({"type": "tool_use", "id": id, "name": event.name, "input": {}})
                for piece in in_pieces(without_halves(arguments)):
                    yield self._delta({"type": "input_json_delta", "partial_json": piece})
                if isinstance(event, ParsedCall):
                    yield from self.close()

    def close(self) -> Iterator[JsonObject]:
        """End the open block, if there is one."""
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": _signature(self._head)})
        if self._open is not None:
            yield {"type": "content_block_stop", "index": self.index}
        self._open = None

    def _enter(self, block: JsonObject) -> Iterator[JsonObject]:
        if self._open == block["type"]:
            return
        yield from self.close()
        self._open = block["type"]
        self.index += 1
        yield {"type": "content_block_start", "index": self.index, "content_block": block}

    def _delta(self, delta: JsonObject) -> JsonObject:
        return {"type": "content_block_delta", "index": self.index, "delta": delta}


def _whole_blocks(events: Iterable[ResponseEvent], head: ResponseHead) -> list[JsonObject]:
    """The blocks that a stream of the same events adds up to, without calls that were not completed."""
    blocks: list[JsonObject] = []
    whole = (event for event in events if not isinstance(event, CallDelta))
    for kind, group in groupby(whole, type):
        if kind is ParsedCall:
            for call in group:
                assert isinstance(call, ParsedCall)
                arguments = orjson.Fragment(without_halves(call.arguments))
                id = _call_id(head, call)
                blocks.append({"type": "tool_use", "id": id, "name": call.name, "input": arguments})
            continue
        text = "".join(event.text for event in group if isinstance(event, TextDelta | ReasoningDelta))
        thought = {"type": "thinking", "thinking": text, "signature": _signature(head)}
        blocks.append(thought if kind is ReasoningDelta else {"type": "text", "text": text})
    return blocks


def error_body(error: RequestError) -> JsonObject:
    """`{"type": "error", "error": {type, message}}`: a response's body, or a stream's last event."""
    words = TOO_LONG if error.code == "context_length_exceeded" else ""
    kind = TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": words + error.message}}
