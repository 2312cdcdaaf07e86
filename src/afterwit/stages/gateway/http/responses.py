"""JSON over raw ASGI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from starlette.types import Send

from afterwit.core.errors import RequestError
from afterwit.wire.dialect import Dialect

RawHeaders = Iterable[tuple[bytes, bytes]]
JSON = (b"content-type", b"application/json")

INTERNAL = RequestError(500, "internal_error", "Something failed in Afterwit; its log says where.")


async def send_json(send: Send, status: int, data: Mapping[str, Any], headers: RawHeaders = ()) -> None:
    """One whole JSON response."""
    payload = orjson.dumps(data)
    length = (b"content-length", str(len(payload)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [JSON, length, *headers]})
    await send({"type": "http.response.body", "body": payload})


async def send_error(
    send: Send, error: RequestError, dialect: Dialect, headers: RawHeaders, *, retry_after_s: int
) -> None:
    """An error in the dialect's form, with the headers that its status asks for beside those given."""
    by_status: dict[int, RawHeaders] = {
        401: [(b"www-authenticate", b"Bearer")],
        408: [(b"connection", b"close")],
        413: [(b"connection", b"close")],
        429: [(b"retry-after", str(retry_after_s).encode())],
        503: [(b"retry-after", str(retry_after_s).encode()), (b"connection", b"close")],
    }
    await send_json(
        send, error.status, dialect.error_body(error), [*headers, *by_status.get(error.status, ())]
    )
