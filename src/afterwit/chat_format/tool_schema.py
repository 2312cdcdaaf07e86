"""Checks a response's tool calls against the schemas of its tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import jsonschema_rs
import orjson

from afterwit.chat_format.calls import schemas_of, target_of
from afterwit.chat_format.parse import holds_unread_call
from afterwit.text import without_halves
from afterwit.turn import Message, ToolCall

MOST_VISITS = 20_000
"""Pairs of a subschema and a value. The schemas of real tools need some hundreds."""

_OF_THE_VALUE = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
"""Keywords whose schemas are applied to the value itself."""

_OF_EACH_PART = frozenset(
    {"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "patternProperties"}
    | {"additionalProperties", "unevaluatedProperties", "propertyNames"}
)
"""Keywords whose schemas are applied to some parts of the value, counted as all parts."""

_MAPPINGS = frozenset({"dependentSchemas", "dependencies", "patternProperties"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def schema_error(response: Message, tools: Sequence[Mapping[str, Any]]) -> str | None:
    """The error of the first bad call, in words; None if every call is well formed.

    A call is bad if its tool is unknown, if its arguments are not a JSON object, or if the tool's schema
    refuses them. If there are tools, a call that could not be read is bad too.
    """
    schemas = schemas_of(tools)
    if tools and holds_unread_call(response.content or ""):
        return "a tool call could not be read"
    errors = (_call_error(call, schemas) for call in response.tool_calls)
    return next((error for error in errors if error is not None), None)


def _call_error(call: ToolCall, schemas: Mapping[str, Any]) -> str | None:
    """The call's error. A schema that cannot be applied accepts everything.

    Any client can send a schema: references are not fetched, patterns match in linear time, and a schema that
    could take very long is not applied.
    """
    if call.name not in schemas:
        return f"there is no tool {call.name}"
    try:
        arguments = orjson.loads(without_halves(call.arguments) or "{}")
    except orjson.JSONDecodeError:
        return f"the arguments of {call.name} are not JSON"
    if not isinstance(arguments, dict):
        return f"the arguments of {call.name} are not a JSON object"
    schema = schemas[call.name]
    if not schema or not _is_bounded(schema, arguments):
        return None
    try:
        validator = jsonschema_rs.validator_for(
            schema, offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
        error = next(iter(validator.iter_errors(arguments)), None)
    except (ValueError, jsonschema_rs.ReferencingError):
        return None
    return None if error is None else f"the arguments of {call.name} do not fit its schema: {error.message}"


def _is_bounded(schema: Any, value: Any) -> bool:
    """Whether the schema can be applied to the value in at most MOST_VISITS visits.

    Also False if a reference is anything but a JSON pointer into the schema.
    """
    waiting = [(schema, value)]
    for _ in range(MOST_VISITS):
        if not waiting:
            return True
        visited, part = waiting.pop()
        try:
            for visit in _visits(schema, visited, part):
                waiting.append(visit)
                if len(waiting) > MOST_VISITS:
                    return False
        except LookupError:
            return False
    return not waiting


def _visits(root: Any, visited: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The subschemas that one leads to, each with its value. LookupError for a reference without a target."""
    if not isinstance(visited, Mapping):
        return
    if "$id" in visited and visited is not root:
        raise LookupError("references below are relative to another schema")
    for key, held in visited.items():
        if key in _REFERENCES:
            yield target_of(root, held), value
        elif key == "properties":
            if isinstance(held, Mapping) and isinstance(value, Mapping):
                yield from ((held[name], part) for name, part in value.items() if name in held)
        elif key in _OF_THE_VALUE or key in _OF_EACH_PART:
            if key in _MAPPINGS and isinstance(held, Mapping):
                schemas = list(held.values())
            else:
                schemas = held if isinstance(held, list) else [held]
            parts = [value]
            if key in _OF_EACH_PART:
                parts = list(value.values()) if isinstance(value, Mapping) else value
            yield from product(schemas, parts if isinstance(parts, list) else [])
