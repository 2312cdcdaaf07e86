"""The form of a response: `response_format` of chat completions, `text.format` of Responses."""

from __future__ import annotations

from typing import Any

from afterwit.wire.fields import as_object, flag
from afterwit.wire.json_form import ANY_OBJECT, parse_schema, unknown_form
from afterwit.wire.request import JsonForm


def parse_form(value: Any, where: str, *, nested: bool) -> JsonForm | None:
    """The form; None for free text. `nested`: a schema is in a field `json_schema` of its own, as in chat."""
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
