"""Server-sent events: the frames of a stream of JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from afterwit.text import one_line

CONTENT_TYPE = "text/event-stream; charset=utf-8"

COMMENT = b": ping\n\n"
"""Not an event: readers of server-sent events skip lines that begin with a colon."""


def event(data: Mapping[str, Any]) -> bytes:
    """One `data:` event. JSON never contains raw line breaks, so one line is enough."""
    return b"data: " + one_line(orjson.dumps(data)) + b"\n\n"


def named_event(data: Mapping[str, Any]) -> bytes:
    """An event with the `type` of its data as its name, which some clients require."""
    return f"event: {data['type']}\n".encode() + event(data)


class Frame(NamedTuple):
    """The bytes of an event around its text. Most events of a stream differ only in this text."""

    before: bytes
    after: bytes

    @classmethod
    def of(cls, event: bytes, field: str) -> Frame:
        """The frame of an event whose `field` is an empty text. No later field may have this name."""
        before, key, after = event.rpartition(b'"%b":""' % field.encode())
        return cls(before + key.removesuffix(b'""'), after)

    def around(self, text: str) -> bytes:
        """The event with this text."""
        return self.before + one_line(orjson.dumps(text)) + self.after
