"""The JSON form that a client requires of a response, and the limits of its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from afterwit.dialects.fields import as_object, flag, shown, storable, wrong_value
from afterwit.dialects.request import JsonForm
from afterwit.errors import RequestError

LARGEST = 131_072
"""Bytes of a schema. OpenAI accepts 120,000 characters of names and values."""

LONGEST_TEXT = 4096
"""Characters of one literal text or pattern. For each token, the engine computes what may come next, in time
that grows with the length of a text and with the square of a pattern's length."""

ANY_OBJECT = JsonForm(schema='{"type":"object"}', strict=True)

NOTES = frozenset({"title", "description", "$comment", "default", "examples"})
"""Keywords that do not constrain the response. A property may have the same name: its schema is an object."""


def parse_form(value: Any, where: str, *, nested: bool) -> JsonForm | None:
    """The form; None for free text. `nested`: the schema is in a field `json_schema`, as in chat."""
    if value is None:
        return None
    form = as_object(value, where)
    kind = form.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "json_schema":
        raise unknown_form(kind, where)
    if nested:
        where = f"{where}.json_schema"
        form = as_object(form.get("json_schema"), where)
    return parse_schema(form.get("schema"), f"{where}.schema", strict=flag(form, "strict"))


def unknown_form(kind: Any, where: str) -> RequestError:
    message = f"{where} {shown(str(kind))} is not served: ask for text, json_object or json_schema"
    return RequestError(400, "unsupported_response_format", message, param=where)


def parse_schema(value: Any, where: str, *, strict: bool) -> JsonForm:
    """The form that a schema describes. Raises RequestError 400 if it is too large or not a schema."""
    schema = as_object(value, where)
    storable(schema, where)
    text = orjson.dumps(schema).decode()
    if len(text) > LARGEST:
        raise wrong_value(where, f"has {len(text)} bytes, more than {LARGEST}")
    longest = max(map(len, _texts(schema)), default=0)
    if longest > LONGEST_TEXT:
        raise wrong_value(where, f"holds a text of {longest} characters, more than {LONGEST_TEXT}")
    return JsonForm(schema=text, strict=strict)


def _texts(schema: Mapping[str, Any]) -> Iterator[str]:
    """The patterns, names and literal values of a schema, without its notes."""
    waiting: list[tuple[Any, bool]] = [(schema, False)]
    while waiting:
        value, literal = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting += ((each, literal) for each in value)
        elif isinstance(value, Mapping):
            yield from value
            for key, held in value.items():
                if literal or key not in NOTES or isinstance(held, Mapping):
                    waiting.append((held, literal or key in ("const", "enum")))
