"""Reads the JSON schema that a client asks its response to fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any

import orjson

from afterwit.core.errors import RequestError
from afterwit.wire.fields import as_object, shown, storable, wrong_value
from afterwit.wire.request import JsonForm

LARGEST = 131_072
"""Bytes of a schema. OpenAI takes 120,000 characters of names and values."""
LONGEST_TEXT = 4096
"""Characters of one text that a response must repeat, and of one pattern. What may come next is worked out
for each token, in time that grows with the length of a text and with the square of a pattern's."""
ANY_OBJECT = JsonForm(schema='{"type":"object"}', strict=True)
"""A JSON object, whatever is in it."""


NOTES = frozenset({"title", "description", "$comment", "default", "examples"})
"""Keywords that a response need not follow."""


class _Part(Enum):
    """What a part of a schema is."""

    SCHEMA = auto()
    NAMES = auto()
    """Schemas by names that a response may write, or by patterns of them."""
    LITERAL = auto()
    """A value that a response repeats."""


PARTS = {
    "properties": _Part.NAMES,
    "patternProperties": _Part.NAMES,
    "const": _Part.LITERAL,
    "enum": _Part.LITERAL,
}
"""What a keyword holds, unless it is a schema."""


def parse_schema(value: Any, where: str, *, strict: bool) -> JsonForm:
    """The form that a schema describes. Raises RequestError 400 for what is no schema, or too large a one."""
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
    """Patterns, names and literal values; not what is written for people, nor defaults and examples."""
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
            waiting += ((held, of) for key, held in value.items() if (of := _part(key, part)) is not None)


def _part(key: str, of: _Part) -> _Part | None:
    """What a key of this part holds; None for what a response need not follow."""
    match of:
        case _Part.SCHEMA:
            return None if key in NOTES else PARTS.get(key, _Part.SCHEMA)
        case _Part.NAMES:
            return _Part.SCHEMA
    return _Part.LITERAL


def unknown_form(kind: Any, where: str) -> RequestError:
    """The 400 for a form that is not served."""
    message = f"{where} {shown(str(kind))} is not served: ask for text, json_object or json_schema"
    return RequestError(400, "unsupported_response_format", message, param=where)
