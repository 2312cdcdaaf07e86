"""How much work a JSON schema can cause on a value. Pure.

References let a short schema ask one question 2^40 times. A validator holds the interpreter meanwhile, so
that everything else would stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

MOST_VISITS = 20_000
"""Pairs of a subschema and a value. The schemas of real tools need some hundreds."""

_OF_THE_VALUE = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
"""Keywords whose schemas are applied to the value itself."""
_OF_EACH_PART = frozenset(
    {
        "items",
        "prefixItems",
        "additionalItems",
        "unevaluatedItems",
        "contains",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        "propertyNames",
    }
)
"""Keywords whose schemas are applied to some parts of the value, here counted as all of them."""
_MAPPINGS = frozenset({"dependentSchemas", "dependencies", "patternProperties"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

Visit = tuple[Any, Any]
"""A subschema and the value that it is applied to."""


def is_bounded(schema: Any, value: Any) -> bool:
    """Whether the schema can be applied to the value in at most MOST_VISITS visits.

    Also False if that is not known: if a reference is anything but a JSON pointer into the schema.
    """
    waiting: list[Visit] = [(schema, value)]
    for _ in range(MOST_VISITS):
        if not waiting:
            return True
        visited, part = waiting.pop()
        if not isinstance(visited, Mapping):
            continue
        try:
            for visit in _next(schema, visited, part):
                waiting.append(visit)
                if len(waiting) > MOST_VISITS:
                    return False
        except LookupError:
            return False
    return not waiting


def _next(root: Any, visited: Mapping[str, Any], value: Any) -> Iterator[Visit]:
    """The visits that one visit leads to. LookupError if a reference cannot be followed."""
    if "$id" in visited and visited is not root:
        raise LookupError("references below are relative to another schema")
    for key, held in visited.items():
        if key in _REFERENCES:
            yield _target(root, held), value
        elif key in _OF_THE_VALUE:
            yield from ((schema, value) for schema in _schemas(key, held))
        elif key in _OF_EACH_PART:
            yield from product(_schemas(key, held), _parts(value))
        elif key == "properties" and isinstance(held, Mapping) and isinstance(value, Mapping):
            yield from ((held[name], part) for name, part in value.items() if name in held)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _schemas(key: str, held: Any) -> tuple[Any, ...]:
    """The schemas that a keyword holds: one, a list or a mapping of them."""
    if key in _MAPPINGS and isinstance(held, Mapping):
        return tuple(held.values())
    return tuple(held) if isinstance(held, list) else (held,)


def _target(root: Any, reference: Any) -> Any:
    """What a reference such as `#/$defs/a` leads to. LookupError if it leads nowhere, or through a list."""
    if not isinstance(reference, str) or "%" in reference or not f"{reference}/".startswith("#/"):
        raise LookupError(reference)
    found = root
    for step in reference.split("/")[1:]:
        if not isinstance(found, Mapping):
            raise LookupError(reference)
        found = found[step.replace("~1", "/").replace("~0", "~")]
    return found
