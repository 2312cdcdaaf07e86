"""Errors in OpenAI's form."""

from __future__ import annotations

from typing import Any

from afterwit.core.errors import RequestError
from afterwit.wire.request import Field

PARAMS: dict[str | None, str] = {Field.STOP_IDS: "stop_token_ids"}
"""What clients call a field whose name here differs."""


def error_type(status: int) -> str:
    """OpenAI's class of an error; `code` says what exactly is wrong."""
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def error_body(error: RequestError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`: a response's body, or a stream's last object."""
    return {
        "error": {
            "message": error.message,
            "type": error_type(error.status),
            "param": PARAMS.get(error.param, error.param),
            "code": error.code,
        }
    }
