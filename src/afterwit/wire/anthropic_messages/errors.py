"""Errors in Anthropic's form."""

from __future__ import annotations

from typing import Any

from afterwit.core.errors import RequestError

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Statuses that have a type of their own."""
TOO_LONG = "prompt is too long: "
"""Clients look for these words. When they find them, they compact the conversation."""


def error_type(status: int) -> str:
    """Anthropic's class of an error."""
    return TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def error_body(error: RequestError) -> dict[str, Any]:
    """`{"type": "error", "error": {type, message}}`: a response's body, or a stream's last event."""
    words = TOO_LONG if error.code == "context_length_exceeded" else ""
    return {"type": "error", "error": {"type": error_type(error.status), "message": words + error.message}}
