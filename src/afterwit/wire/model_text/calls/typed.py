"""Values that a model writes without quotes: the tool's schema says whether `3` is a number or a text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from afterwit.wire.model_text.calls.json_calls import DECODER

MOST_VISITS = 64
"""Subschemas that are looked at for the types of one value; a schema of references may have no end."""
_PYTHON = {"True": "true", "False": "false", "None": "null"}
"""Older templates write a value as Python prints it, and their models do, too."""
_KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


def object_of(values: Iterable[tuple[str, str]], schema: Any) -> str:
    """The JSON object of parameters by name, each value as it was written."""
    parts = [f"{_quoted(name)}: {typed(value, _property(schema, name), schema)}" for name, value in values]
    return "{" + ", ".join(parts) + "}"


def typed(value: str, schema: Any, root: Any) -> str:
    """The JSON text of a value. `schema` is a part of `root`, which its references lead into.

    A value that is nothing that its schema allows is a text: the check of the call's arguments says so. A
    value without a schema is what its JSON is, if it is JSON and no text in quotes.
    """
    types = types_of(schema, root)
    trimmed = value.strip()
    trimmed = _PYTHON.get(trimmed, trimmed)
    if "string" in types and not (trimmed == "null" and "null" in types):
        return _quoted(value)
    kind = _kind(trimmed)
    if kind in types or (kind == "integer" and "number" in types):
        return trimmed
    return trimmed if not types and kind not in ("string", "") else _quoted(value)


def types_of(schema: Any, root: Any) -> frozenset[str]:
    """The JSON types that a schema allows; empty if it does not say."""
    types: set[str] = set()
    waiting, visits = [schema], 0
    while waiting:
        part, visits = waiting.pop(), visits + 1
        if not isinstance(part, Mapping) or visits > MOST_VISITS:
            return frozenset()
        if "$ref" in part:
            waiting.append(_target(root, part["$ref"]))
            continue
        found = _own_types(part)
        choices = [choice for key in ("anyOf", "oneOf") for choice in _listed(part.get(key))]
        if not found and not choices:
            return frozenset()
        types |= found
        waiting += [] if found else choices
    return frozenset(types)


def _own_types(schema: Mapping[str, Any]) -> set[str]:
    named = schema.get("type")
    if isinstance(named, str):
        return {named, "null"} if schema.get("nullable") is True else {named}
    if isinstance(named, list):
        return {name for name in named if isinstance(name, str)}
    values = [schema["const"]] if "const" in schema else _listed(schema.get("enum"))
    return {_KINDS.get(type(value), "null") for value in values}


def _property(schema: Any, name: str) -> Any:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties.get(name) if isinstance(properties, Mapping) else None


def _target(root: Any, reference: Any) -> Any:
    """What a reference such as `#/$defs/a` leads to; None if it leads nowhere."""
    found = root
    for step in str(reference).removeprefix("#").split("/")[1:]:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if str(reference).startswith("#/") else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _kind(text: str) -> str:
    """The JSON type of a JSON text; empty if it is none."""
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError):
        return ""
    return "null" if value is None else _KINDS[type(value)]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
