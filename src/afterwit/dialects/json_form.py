"""The JSON form that a client requires of a response, and the limits of its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
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


class _Part(Enum):
    """The meaning of a keyword's value."""

    SCHEMA = auto()
    NAMES = auto()
    """Schemas by property name, or by a pattern."""
    LITERAL = auto()
    """A value that the response repeats."""
    NOTE = auto()
    """Text that does not constrain the response."""


_PARTS = {
    **dict.fromkeys(("properties", "patternProperties"), _Part.NAMES),
    **dict.fromkeys(("const", "enum"), _Part.LITERAL),
    **dict.fromkeys(("title", "description", "$comment", "default", "examples"), _Part.NOTE),
}
"""Keywords that hold anything but a schema."""


def _texts(schema: Mapping[str, Any]) -> Iterator[str]:
    """The patterns, names and literal values of a schema."""
    waiting: list[tuple[Any, _Part]] = [(schema, _Part.SCHEMA)]
    while waiting:
        value, part = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting += ((each, part) for each in value)
        elif isinstance(value, Mapping):
            if part is not _Part.SCHEMA:
                yield from value
            held = ((held, _within(key, part)) for key, held in value.items())
            waiting += ((held, within) for held, within in held if within is not _Part.NOTE)


def _within(key: str, part: _Part) -> _Part:
    if part is _Part.NAMES:
        return _Part.SCHEMA
    return _PARTS.get(key, _Part.SCHEMA) if part is _Part.SCHEMA else part
