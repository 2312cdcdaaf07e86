"""Server-sent events: how a stream of JSON objects is framed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

CONTENT_TYPE = "text/event-stream; charset=utf-8"


def named_event(data: Mapping[str, Any]) -> bytes:
    """An event that is named after the `type` of its data, as some clients want it."""
    return f"event: {data['type']}\n".encode() + event(data)


def event(data: Mapping[str, Any]) -> bytes:
    """One `data:` event. JSON holds no raw line breaks, so one line is always enough."""
    return b"data: " + orjson.dumps(data) + b"\n\n"
