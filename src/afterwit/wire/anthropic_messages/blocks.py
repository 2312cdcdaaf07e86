"""Content blocks of an Anthropic response: as a stream's events, and whole."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeGuard

import orjson

from afterwit.core.ids import with_prefix
from afterwit.core.surrogates import without_halves
from afterwit.wire.response import (
    CallDelta,
    ParsedCall,
    ReasoningDelta,
    ResponseEvent,
    ResponseHead,
    SentCalls,
    TextDelta,
)

JsonObject = dict[str, Any]

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
