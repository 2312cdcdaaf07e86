"""Reads what a form of the page sends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.requests import Request

from afterwit.core.errors import RequestError

MOST_BYTES = 16 * 2**10
MOST_FIELDS = 32
FORM = "application/x-www-form-urlencoded"


async def read_form(request: Request, *, pause_s: float) -> Mapping[str, str]:
    """The fields, each with its first value. Raises 408, 413 and 415."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise RequestError(415, "unsupported_media_type", f"A form sends {FORM}.")
    data = bytearray()
    try:
        async with asyncio.timeout(pause_s):
            async for piece in request.stream():
                data += piece
                if len(data) > MOST_BYTES:
                    raise RequestError(413, "request_too_large", "The form is too large.")
    except TimeoutError as error:
        raise RequestError(408, "body_timeout", "The form did not arrive in time.") from error
    try:
        fields = parse_qs(data.decode(errors="replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise RequestError(413, "request_too_large", "The form has too many fields.") from error
    return {name: values[0] for name, values in fields.items()}
