"""Errors in the form of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any

from afterwit.core.errors import RequestError
from afterwit.wire.openai import error_form
from afterwit.wire.request import Field

PARAMS: dict[str | None, str] = {
    Field.MESSAGES: "input",
    Field.STOP_IDS: "stop_token_ids",
    Field.FORMAT: "text.format",
}
"""What clients call a field whose name here differs."""


def error_body(error: RequestError) -> dict[str, Any]:
    """A response's body."""
    return error_form(error, PARAMS)


def error_event(error: RequestError) -> dict[str, Any]:
    """The `error` event of a stream."""
    form = error_body(error)["error"]
    return {"type": "error", "code": form["code"], "message": form["message"], "param": form["param"]}


def failure(error: RequestError) -> dict[str, Any]:
    """The `error` of a failed response. Clients know few codes: a server's fault has one for all."""
    return {"code": "server_error" if error.status >= 500 else error.code, "message": error.message}
