"""Errors in OpenAI's shape."""

from __future__ import annotations

from typing import Any

from afterwit.core.errors import RequestError


def error_type(status: int) -> str:
    """OpenAI's word for a class of errors; what exactly is wrong stands in `code`."""
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def error_body(error: RequestError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`: a response's body, or a stream's last object."""
    return {
        "error": {
            "message": error.message,
            "type": error_type(error.status),
            "param": error.param,
            "code": error.code,
        }
    }
