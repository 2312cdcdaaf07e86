"""Segments: a conversation in a form that stays the same when clients send it back. For matching only.

Clients send history back changed: arguments are serialised again, reasoning and `name` dropped, white space
stripped, temporary blocks added and removed, ids lose underscores. A segment holds only what clients do not
change.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from afterwit.binding.client_text import without_passing_blocks, without_retelling
from afterwit.ids import plain_id
from afterwit.message import SYSTEM, Message, ToolCall

HASH_BYTES = 16

CALL = "call"
"""First part of a call's segment; the second is its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One thing said: a text, a tool call or a tool result."""

    parts: tuple[str, ...]
    message: int
    """Index of the message it comes from."""


def segments_of(messages: Sequence[Message], texts: Sequence[str]) -> tuple[Segment, ...]:
    """The segments of a conversation; `texts` are the `plain_text` of its messages.

    System text and empty text have no segment. Each tool call is one.
    """
    return tuple(
        Segment(parts=parts, message=index)
        for index, (message, text) in enumerate(zip(messages, texts, strict=True))
        for parts in parts_of(message, text)
    )


def fingerprints(segments: Iterable[Segment], namespace: str) -> tuple[bytes, ...]:
    """Rolling hashes: entry d is of the first d segments. They can be equal only in one `namespace`."""
    hashes = [_hash(b"", namespace)]
    for segment in segments:
        hashes.append(_hash(hashes[-1], *segment.parts))
    return tuple(hashes)


def extend(fingerprint: bytes, segments: Iterable[tuple[str, ...]]) -> bytes:
    """The fingerprint after more segments, given by their parts."""
    for parts in segments:
        fingerprint = _hash(fingerprint, *parts)
    return fingerprint


def plain_text(message: Message) -> str:
    """A message's text as it is compared: without thinking and the client's blocks, white space collapsed."""
    text = message.content or ""
    return collapse(without_retelling(text) if message.role == "assistant" else without_passing_blocks(text))


def collapse(text: str) -> str:
    """Every run of white space as one space, none at the ends."""
    return " ".join(text.split())


def parts_of(message: Message, text: str) -> Iterable[tuple[str, ...]]:
    """The parts of each of a message's segments; `text` is its `plain_text`."""
    if message.role in SYSTEM:
        return
    if message.role == "tool":
        yield "tool", plain_id(message.tool_call_id or ""), text
        return
    if text:
        yield message.role, text
    for call in message.tool_calls:
        yield _call(call)


def _call(call: ToolCall) -> tuple[str, ...]:
    return CALL, plain_id(call.id), call.name, canonical_json(call.arguments)


def canonical_json(text: str) -> str:
    """JSON with sorted keys and one spelling of each value; other text with its white space collapsed."""
    try:
        parsed = json.loads(text, parse_int=_number, parse_float=_number)
        return json.dumps(parsed, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return collapse(text)


def _number(text: str) -> Any:
    """A number as JavaScript would keep it: a double, and 1.0 is 1."""
    value = float(text)
    return int(value) if math.isfinite(value) and value.is_integer() else value


def _hash(before: bytes, *parts: str) -> bytes:
    digest = hashlib.blake2b(before, digest_size=HASH_BYTES)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8))
        digest.update(data)
    return digest.digest()
