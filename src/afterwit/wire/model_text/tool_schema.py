"""Checks a response's tool calls against the schemas of its tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema_rs
import orjson

from afterwit.core.message import Message, ToolCall
from afterwit.core.surrogates import without_halves
from afterwit.wire.model_text.calls.written import schemas_of
from afterwit.wire.model_text.conventions import holds_unread_call
from afterwit.wire.model_text.schema_effort import is_bounded


def schema_error(response: Message, tools: Sequence[Mapping[str, Any]]) -> str | None:
    """What is wrong with the first bad call, in words; None if every call is well formed.

    A call is bad if its tool is unknown, if its arguments are not a JSON object, or if the tool's schema
    refuses them. If there are tools, a call that could not be read is bad too.
    """
    schemas = schemas_of(tools)
    if tools and holds_unread_call(response.content or ""):
        return "a tool call could not be read"
    errors = (_call_error(call, schemas) for call in response.tool_calls)
    return next((error for error in errors if error is not None), None)


def _call_error(call: ToolCall, schemas: Mapping[str, Any]) -> str | None:
    if call.name not in schemas:
        return f"there is no tool {call.name}"
    try:
        arguments = orjson.loads(without_halves(call.arguments) or "{}")
    except orjson.JSONDecodeError:
        return f"the arguments of {call.name} are not JSON"
    if not isinstance(arguments, dict):
        return f"the arguments of {call.name} are not a JSON object"
    return _refusal(call.name, arguments, schemas[call.name])


def _refusal(name: str, arguments: Mapping[str, Any], schema: Any) -> str | None:
    """The schema's objection, None if it has none. A schema that cannot be applied refuses nothing.

    Any client can send a schema: references are not fetched, patterns match in linear time, and a schema that
    could take very long is not applied.
    """
    if not schema or not is_bounded(schema, arguments):
        return None
    try:
        validator = jsonschema_rs.validator_for(
            schema, offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
        error = next(iter(validator.iter_errors(arguments)), None)
    except (ValueError, jsonschema_rs.ReferencingError):
        return None
    return None if error is None else f"the arguments of {name} do not fit its schema: {error.message}"
