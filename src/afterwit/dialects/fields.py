"""Reads one field of a client's JSON object: the value, or a RequestError 400 that names the field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any

import orjson

from afterwit.dialects.request import JsonForm
from afterwit.errors import RequestError

NO_ARGUMENTS = "{}"

LONGEST_SHOWN = 80
"""Characters of a client's text in a message."""


def wrong_type(param: str, wanted: str, value: Any) -> RequestError:
    return RequestError(400, "invalid_type", f"{param} must be {wanted}, not {_kind(value)}", param=param)


def wrong_value(param: str, message: str) -> RequestError:
    return RequestError(400, "invalid_value", f"{param} {message}", param=param)


def shown(text: str) -> str:
    """A client's text as a message quotes it: cut if it is long."""
    return repr(text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "...")


def as_object(value: Any, param: str) -> Mapping[str, Any]:
    if isinstance(value, dict | Mapping):  # what JSON holds is known sooner than what is like it
        return value
    raise wrong_type(param, "an object", value)


def as_list(value: Any, param: str, *, most: int | None = None) -> list[Any]:
    """A list of at most `most` items."""
    if not isinstance(value, list):
        raise wrong_type(param, "an array", value)
    if most is not None and len(value) > most:
        raise wrong_value(param, f"holds {len(value)} items, more than {most}")
    return value


def as_text(value: Any, param: str) -> str:
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    return value


def as_arguments(value: Any, param: str) -> str:
    """The arguments of a call that a client sends back, as JSON text: an object's, if there is one in them.

    Clients send the object in place of its text, its text as a JSON string, and nothing in place of `{}`.
    Anything else is kept as it is, so that a bad call can be sent back.
    """
    if value is None:
        return NO_ARGUMENTS
    if not isinstance(value, str):
        if isinstance(value, dict | list):
            storable(value, param)
        return json.dumps(value, ensure_ascii=False)
    written = value.strip()
    if written in ("", "null"):
        return NO_ARGUMENTS
    return _within_quotes(written) or value


def _within_quotes(written: str) -> str | None:
    """The text of a JSON object that a JSON string holds; None if the text is none."""
    if not written.startswith('"'):
        return None
    try:
        inner = json.loads(written)
        return inner if isinstance(json.loads(inner), dict) else None
    except (ValueError, RecursionError):
        return None


def text(data: Mapping[str, Any], name: str) -> str | None:
    """A string; null and absent are None."""
    value = data.get(name)
    return None if value is None else as_text(value, name)


def flag(data: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong_type(name, "true or false", value)
    return value


def integer(data: Mapping[str, Any], name: str, *, low: int, high: int) -> int | None:
    """A whole number in [low, high]; null and absent are None."""
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(name, "a whole number", value)
    if not low <= value <= high:
        raise wrong_value(name, f"must be between {low} and {high}, not {value}")
    return value


def number(data: Mapping[str, Any], name: str, default: float, *, low: float, high: float) -> float:
    """A number in [low, high]; null and absent are the default."""
    value = data.get(name)
    return default if value is None else as_number(value, name, low=low, high=high)


def as_number(value: Any, param: str, *, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(param, "a number", value)
    if not low <= value <= high:
        raise wrong_value(param, f"must be between {low:g} and {high:g}, not {value}")
    return float(value)


DEEPEST = 100
"""Levels of nesting in values that are stored as they came. Schemas have fewer; JSON writers allow more."""

MOST_HELD = 16_384
"""Values within one such value. A tool has hundreds; nothing else runs while these are written as JSON."""


def storable(value: Any, param: str) -> None:
    """Raise 400 if `value` nests deeper, or holds more, than what is stored as it came."""
    level, held = [value], 0
    for _ in range(DEEPEST):
        held += sum(map(len, level))
        if held > MOST_HELD:
            raise wrong_value(param, f"holds more than {MOST_HELD} values")
        inner = [
            part
            for outer in level
            for part in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(part, dict | list)
        ]
        if not inner:
            return
        level = inner
    raise wrong_value(param, f"nests deeper than {DEEPEST} levels")


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "an array", dict: "an object"}
    return names.get(type(value), "a number")


_NAMES = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio": "audio",
    "audio_url": "audio",
    "video": "video",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
}
"""What each type of part is called."""

_REASON = " omitted: this model reads text]"
_PLACEHOLDER = re.compile(rf"\[({'|'.join(sorted({*_NAMES.values(), 'part'}))}){re.escape(_REASON)}")


def omitted(kind: str) -> str:
    """The note in place of a part of this type."""
    return f"[{_NAMES.get(kind, 'part')}{_REASON}"


def omitted_kind(text: str) -> str | None:
    """What was left out of a text first; None if nothing was."""
    found = _PLACEHOLDER.search(text) if _REASON in text else None
    return found[1] if found else None


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
