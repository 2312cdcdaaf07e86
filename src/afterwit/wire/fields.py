"""Reads one field of a client's JSON object: the value, or a RequestError 400 that names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from afterwit.core.errors import RequestError

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
