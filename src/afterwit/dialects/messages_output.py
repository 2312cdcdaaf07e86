"""Anthropic's encoders: a stream of named events, or one JSON body."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeGuard

import orjson

from afterwit.dialects import sse
from afterwit.dialects.dialect import Encoder
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
)
from afterwit.errors import RequestError
from afterwit.ids import with_prefix
from afterwit.surrogates import without_halves
from afterwit.turn import Finish

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


CALL_PREFIX = "toolu"

TEXT_BLOCKS: Mapping[type[ResponseEvent], str] = {TextDelta: "text", ReasoningDelta: "thinking"}
"""The type of the block that an event adds text to, which is also the name of the text in it."""

PIECE = 64
"""Characters of one piece of a tool call's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockIds:
    """Ids and signatures of the blocks of one response."""

    head: ResponseHead

    def call_id(self, call: CallDelta | ParsedCall) -> str:
        """The id of a call in this dialect's form."""
        return with_prefix(CALL_PREFIX, self.head.call_id(0, call.index))

    @property
    def signature(self) -> str:
        """Of each thinking block. Clients drop thoughts without one, or send them back as text."""
        return base64.b64encode(self.head.turn.encode()).decode()


class BlockStream:
    """The events of a growing content. One block is open at a time."""

    def __init__(self, ids: BlockIds) -> None:
        self._ids = ids
        self._calls = SentCalls()
        self._open: str | None = None
        """The type of the open block."""
        self.index = -1
        """Of the block that was opened last."""

    def only_grows(self, event: ResponseEvent) -> TypeGuard[TextDelta | ReasoningDelta]:
        """Whether the event is no more than text for the open block."""
        return self._open is not None and self._open == TEXT_BLOCKS.get(type(event))

    def grow(self, event: ResponseEvent) -> Iterator[JsonObject]:
        """What an event adds. A call is a block of its own."""
        match event:
            case TextDelta(text=text):
                yield from self._enter({"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            case ReasoningDelta(text=text):
                yield from self._enter({"type": "thinking", "thinking": "", "signature": ""})
                yield self._delta({"type": "thinking_delta", "thinking": text})
            case CallDelta() | ParsedCall():
                yield from self._call(event)

    def _call(self, event: CallDelta | ParsedCall) -> Iterator[JsonObject]:
        begins, arguments = self._calls.add(event)
        if begins:
            yield from self.close()
            call_id = self._ids.call_id(event)
            yield from self._enter({"type": "tool_use", "id": call_id, "name": event.name, "input": {}})
        arguments = without_halves(arguments)
        for start in range(0, len(arguments), PIECE):
            piece = arguments[start : start + PIECE]
            yield self._delta({"type": "input_json_delta", "partial_json": piece})
        if isinstance(event, ParsedCall):
            yield from self.close()

    def close(self) -> Iterator[JsonObject]:
        """End the open block, if there is one."""
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": self._ids.signature})
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


def whole_blocks(events: Iterable[ResponseEvent], ids: BlockIds) -> list[JsonObject]:
    """The blocks that a stream of the same events adds up to, without calls that came to nothing."""
    blocks: list[JsonObject] = []
    whole = (event for event in events if not isinstance(event, CallDelta))
    for kind, group in groupby(whole, type):
        if kind is ParsedCall:
            blocks += [_call(event, ids) for event in group if isinstance(event, ParsedCall)]
            continue
        text = "".join(event.text for event in group if isinstance(event, TextDelta | ReasoningDelta))
        thought = {"type": "thinking", "thinking": text, "signature": ids.signature}
        blocks.append(thought if kind is ReasoningDelta else {"type": "text", "text": text})
    return blocks


def _call(call: ParsedCall, ids: BlockIds) -> JsonObject:
    arguments = orjson.Fragment(without_halves(call.arguments))
    return {"type": "tool_use", "id": ids.call_id(call), "name": call.name, "input": arguments}


TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Statuses that have a type of their own."""

TOO_LONG = "prompt is too long: "
"""Clients look for these words. When they find them, they compact the conversation."""


def error_type(status: int) -> str:
    """Anthropic's class of an error."""
    return TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def error_body(error: RequestError) -> dict[str, Any]:
    """`{"type": "error", "error": {type, message}}`: a response's body, or a stream's last event."""
    words = TOO_LONG if error.code == "context_length_exceeded" else ""
    return {"type": "error", "error": {"type": error_type(error.status), "message": words + error.message}}
