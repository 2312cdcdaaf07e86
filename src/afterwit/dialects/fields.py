"""Readers of a client's JSON fields. Each returns the value or raises RequestError 400, naming the field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from afterwit.errors import RequestError

LONGEST_SHOWN = 80
"""Characters of a client's text in a message."""

Tool = Mapping[str, Any]
"""A tool in OpenAI chat's form."""

DEEPEST = 100
"""Levels of nesting in values that are stored unchanged. Schemas have fewer; JSON writers allow more."""

MOST_HELD = 16_384
"""Values within one such value. A tool has hundreds; the event loop waits while they are written as JSON."""

_NAMES = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "audio"),
    **dict.fromkeys(("video", "video_url"), "video"),
    **dict.fromkeys(("file", "input_file", "document"), "file"),
}
"""Types of content parts that the model cannot read, and their names in its prompt."""

SPEAKERS = frozenset({"user", "system", "developer"})
"""Roles whose messages must have a content in OpenAI's protocols."""

FAILURE = "Error: "
"""Stands before a result that its client marks as an error: templates lack a field for that."""

_REASON = " omitted: this model reads text]"
_PLACEHOLDER = re.compile(rf"\[({'|'.join(sorted({*_NAMES.values(), 'part'}))}){re.escape(_REASON)}")


def wrong_type(param: str, wanted: str, value: Any) -> RequestError:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "an array", dict: "an object"}
    kind = names.get(type(value)) or (str(value) if isinstance(value, float) else "a number")
    return RequestError(400, "invalid_type", f"{param} must be {wanted}, not {kind}", param=param)


def wrong_value(param: str, message: str) -> RequestError:
    return RequestError(400, "invalid_value", f"{param} {message}", param=param)


def shown(text: str) -> str:
    """A client's text, quoted and cut for a message."""
    return repr(text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "...")


def as_object(value: Any, param: str) -> Mapping[str, Any]:
    if isinstance(value, dict | Mapping):  # `dict` is the faster check, and nearly always enough
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


def as_number(value: Any, param: str, *, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(param, "a number", value)
    if not low <= value <= high:
        raise wrong_value(param, f"must be between {low:g} and {high:g}, not {value}")
    return float(value)


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


class Item:
    """An object within a request, and its place, which errors name."""

    __slots__ = ("data", "where")

    def __init__(self, value: Any, where: str) -> None:
        self.data: Mapping[str, Any] = value if isinstance(value, dict) else as_object(value, where)
        self.where = where

    def get(self, name: str) -> Any:
        return self.data.get(name)

    def text(self, name: str) -> str:
        value = self.data.get(name)
        return value if isinstance(value, str) else as_text(value, self.at(name))

    def optional(self, *names: str) -> str | None:
        """The string in the first of these fields that is set; None without one."""
        found = next((name for name in names if self.data.get(name) is not None), None)
        return None if found is None else self.text(found)

    def item(self, name: str) -> Item:
        return Item(self.data.get(name), self.at(name))

    def at(self, name: str) -> str:
        return f"{self.where}.{name}"


def as_items(value: Any, where: str, *, most: int | None = None) -> list[Item]:
    """The objects of a list; null is none."""
    listed = [] if value is None else as_list(value, where, most=most)
    return [Item(each, f"{where}[{index}]") for index, each in enumerate(listed)]


def parse_tools(
    value: Any, most: int, read: Callable[[Item], Tool | None]
) -> tuple[tuple[Tool, ...], str | None]:
    """At most `most` tools, each by `read`, which returns None for one that is not a function; and the type
    of the first of those, None if all are functions."""
    found = [(item, read(item)) for item in as_items(value, "tools", most=most)]
    other = next((str(item.get("type")) for item, tool in found if tool is None), None)
    return tuple(tool for _, tool in found if tool is not None), other


def as_role(item: Item, roles: Collection[str]) -> str:
    role = item.text("role")
    if role not in roles:
        raise wrong_value(item.at("role"), f"must be one of {', '.join(roles)}, not {shown(role)}")
    return role


def as_name(item: Item) -> str:
    name = item.text("name")
    if not name:
        raise wrong_value(item.at("name"), "must not be empty")
    return name


def as_arguments(item: Item, name: str) -> str:
    """The arguments of a call in the history, as JSON text.

    Clients send an object, its JSON text, that text as a JSON string, or nothing for `{}`. Any other value is
    kept, so that a malformed call can be sent back.
    """
    value = item.get(name)
    if not isinstance(value, str):
        storable(value, item.at(name))
        return json.dumps({} if value is None else value, ensure_ascii=False)
    written = value.strip()
    if written in ("", "null"):
        return "{}"
    if written.startswith('"'):
        try:
            inner: str = json.loads(written)
            return inner if isinstance(json.loads(inner), dict) else value
        except (ValueError, RecursionError):
            pass
    return value


def as_result(item: Item, name: str) -> Any:
    """A tool's result: a text or parts, else its JSON text. Some clients send what the tool returned."""
    value = item.get(name)
    if value is None or isinstance(value, str) or (isinstance(value, list) and all(map(_is_part, value))):
        return value
    storable(value, item.at(name))
    return json.dumps(value, ensure_ascii=False)


def _is_part(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and "type" in value)


def storable(value: Any, param: str) -> None:
    """Raise 400 if `value` nests deeper, or holds more values, than the limits of a stored value."""
    if not isinstance(value, dict | list):
        return
    level, held = [value], 0
    for _ in range(DEEPEST):
        held += sum(map(len, level))
        if held > MOST_HELD:
            raise wrong_value(param, f"holds more than {MOST_HELD} values")
        level = [
            part
            for outer in level
            for part in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(part, dict | list)
        ]
        if not level:
            return
    raise wrong_value(param, f"nests deeper than {DEEPEST} levels")


def omitted(kind: str) -> str:
    return f"[{_NAMES.get(kind, 'part')}{_REASON}"


def omitted_kind(text: str) -> str | None:
    """The name in the first placeholder of a text; None if it has none."""
    found = _PLACEHOLDER.search(text) if _REASON in text else None
    return found[1] if found else None
