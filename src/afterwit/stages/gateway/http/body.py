"""Reads a request's body as JSON, within limits of size and time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from afterwit.core.errors import RequestError
from afterwit.core.surrogates import without_halves

HEARD_OUT = 4
"""Times the limit. A larger body is read and dropped up to this size; then its sender is cut off."""

MOST_VALUES = 131_072
"""Values of one body. An agent's request has thousands; to decode this many takes a tenth of a second."""
_STRINGS_AND_MARKS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[,\[{]', re.DOTALL)
"""A string, or a mark that begins a value."""


def check_headers(headers: Mapping[str, str], limit: int) -> None:
    """Raise 413 or 415 if the headers alone are enough to refuse the body."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > HEARD_OUT * limit:
        raise _too_large(limit)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError(415, "unsupported_encoding", "Send the body uncompressed.")
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise RequestError(415, "unsupported_media_type", f"Send application/json, not {kind or 'nothing'}.")


async def read_body(
    headers: Mapping[str, str],
    receive: Receive,
    *,
    limit: int,
    pause_s: float,
    hold: Callable[[int], None],
) -> bytes:
    """The whole body. Raises 413 over `limit` bytes, 408 after `pause_s` seconds without a piece, and 415.

    A body that is somewhat too large is read to its end first, because a client that is cut off does not
    read the answer. `hold` is told of the bytes that are kept, and may raise.
    """
    check_headers(headers, limit)
    pieces: list[bytes] = []
    size = 0
    more = True
    while more and size <= HEARD_OUT * limit:
        message = await _next(receive, pause_s)
        piece = message.get("body", b"")
        size += len(piece)
        if size <= limit:
            hold(len(piece))
            pieces.append(piece)
        more = message.get("more_body", False)
    if size > limit:
        raise _too_large(limit)
    return b"".join(pieces)


async def _next(receive: Receive, pause_s: float) -> Message:
    try:
        async with asyncio.timeout(pause_s):
            message = await receive()
    except TimeoutError as error:
        raise RequestError(408, "body_timeout", "The request's body did not arrive in time.") from error
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


def parse_json(data: bytes) -> dict[str, Any]:
    """The body as a JSON object, else 400. Halves of surrogate pairs are read as U+FFFD."""
    _check_values(data)
    try:
        parsed = _loads(data)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, "invalid_json", f"The body is not JSON: {error.msg}.") from error
    if not isinstance(parsed, dict):
        raise RequestError(400, "invalid_json", "The body must be a JSON object.")
    return parsed


def _check_values(data: bytes) -> None:
    """Raise 400 for more values than any request has: nothing else runs while JSON is decoded.

    Commas and brackets are counted first wherever they are, and one by one only if they are too many: those
    within strings are text.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) <= MOST_VALUES:
        return
    marks = (found for found in _STRINGS_AND_MARKS.finditer(data) if found[0][:1] != b'"')
    if next(islice(marks, MOST_VALUES, None), None) is not None:
        raise RequestError(400, "invalid_json", f"The body holds more than {MOST_VALUES} values.")


def _loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if "surrogate" not in error.msg:
            raise
        return orjson.loads(without_halves(data.decode(errors="replace")))


def _too_large(limit: int) -> RequestError:
    return RequestError(413, "request_too_large", f"The body is larger than {limit} bytes.")
