"""Errors in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.core.errors import RequestError


def error_type(status: int) -> str:
    """OpenAI's class of an error; `code` says what exactly is wrong."""
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def error_form(error: RequestError, params: Mapping[str | None, str]) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`. `params` names the fields that clients call otherwise."""
    return {
        "error": {
            "message": error.message,
            "type": error_type(error.status),
            "param": params.get(error.param, error.param),
            "code": error.code,
        }
    }
