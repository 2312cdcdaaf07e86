"""Errors in the form of OpenAI's chat completions."""

from __future__ import annotations

from typing import Any

from afterwit.core.errors import RequestError
from afterwit.wire.openai import error_form
from afterwit.wire.request import Field

PARAMS: dict[str | None, str] = {Field.STOP_IDS: "stop_token_ids"}
"""What clients call a field whose name here differs."""


def error_body(error: RequestError) -> dict[str, Any]:
    """A response's body, or a stream's last object."""
    return error_form(error, PARAMS)
