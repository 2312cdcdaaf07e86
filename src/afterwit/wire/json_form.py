"""Reads the JSON schema that a client asks its response to fit."""

from __future__ import annotations

from typing import Any

import orjson

from afterwit.core.errors import RequestError
from afterwit.wire.fields import as_object, shown, storable, wrong_value
from afterwit.wire.request import JsonForm

LARGEST = 131_072
"""Bytes of a schema. OpenAI takes 120,000 characters of names and values."""
ANY_OBJECT = JsonForm(schema='{"type":"object"}', strict=True)
"""A JSON object, whatever is in it."""


def parse_schema(value: Any, where: str, *, strict: bool) -> JsonForm:
    """The form that a schema describes. Raises RequestError 400 for what is no schema, or too large a one."""
    schema = as_object(value, where)
    storable(schema, where)
    text = orjson.dumps(schema).decode()
    if len(text) > LARGEST:
        raise wrong_value(where, f"has {len(text)} bytes, more than {LARGEST}")
    return JsonForm(schema=text, strict=strict)


def unknown_form(kind: Any, where: str) -> RequestError:
    """The 400 for a form that is not served."""
    message = f"{where} {shown(str(kind))} is not served: ask for text, json_object or json_schema"
    return RequestError(400, "unsupported_response_format", message, param=where)
