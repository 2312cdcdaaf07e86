"""Reads a request's body as JSON, within limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from afterwit.core.errors import RequestError
from afterwit.wire.surrogates import without_halves

HEARD_OUT = 4
"""Times the limit. A larger body is read and dropped up to this size; then its sender is cut off."""


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


async def read_body(receive: Receive, *, limit: int, pause_s: float) -> bytes:
    """The whole body. Raises 413 over `limit` bytes, 408 after `pause_s` seconds without a piece.

    A body that is somewhat too large is read to its end first, because a client that is cut off does not
    read the answer.
    """
    pieces: list[bytes] = []
    size = 0
    more = True
    while more and size <= HEARD_OUT * limit:
        message = await _next(receive, pause_s)
        piece = message.get("body", b"")
        size += len(piece)
        if size <= limit:
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


async def read_json(
    headers: Mapping[str, str], receive: Receive, *, limit: int, pause_s: float
) -> tuple[dict[str, Any], int]:
    """The body as a JSON object, and its size in bytes. Raises 400, 408, 413 and 415."""
    check_headers(headers, limit)
    data = await read_body(receive, limit=limit, pause_s=pause_s)
    return parse_json(data), len(data)


def parse_json(data: bytes) -> dict[str, Any]:
    """The body as a JSON object, else 400. Halves of surrogate pairs are read as U+FFFD."""
    try:
        parsed = _loads(data)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, "invalid_json", f"The body is not JSON: {error.msg}.") from error
    if not isinstance(parsed, dict):
        raise RequestError(400, "invalid_json", "The body must be a JSON object.")
    return parsed


def _loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if "surrogate" not in error.msg:
            raise
        return orjson.loads(without_halves(data.decode(errors="replace")))


def _too_large(limit: int) -> RequestError:
    return RequestError(413, "request_too_large", f"The body is larger than {limit} bytes.")
