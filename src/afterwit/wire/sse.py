"""Server-sent events: how a stream of JSON objects is framed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"
"""OpenAI's end of a stream."""


def event(data: Mapping[str, Any]) -> bytes:
    """One `data:` event. JSON holds no raw line breaks, so one line is always enough."""
    return b"data: " + orjson.dumps(data) + b"\n\n"
