"""Server-sent events: how a stream of JSON objects is framed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

CONTENT_TYPE = "text/event-stream; charset=utf-8"

COMMENT = b": ping\n\n"
"""No event: every reader of server-sent events leaves out a line that begins with a colon."""


def named_event(data: Mapping[str, Any]) -> bytes:
    """An event that is named after the `type` of its data, as some clients want it."""
    return f"event: {data['type']}\n".encode() + event(data)


def event(data: Mapping[str, Any]) -> bytes:
    """One `data:` event. JSON holds no raw line breaks, so one line is always enough."""
    return b"data: " + orjson.dumps(data) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """An event around the text that it brings: nearly all events of a stream differ in that alone."""

    before: bytes
    behind: bytes

    @classmethod
    def of(cls, event: bytes, field: str) -> Frame:
        """The frame of an event whose `field` is an empty text, and of no name that comes later in it."""
        before, key, behind = event.rpartition(b'"%b":""' % field.encode())
        return cls(before + key.removesuffix(b'""'), behind)

    def around(self, text: str) -> bytes:
        """The event with this text."""
        return self.before + orjson.dumps(text) + self.behind
