"""The schema of a response's form: how long its texts may be."""

from __future__ import annotations

from typing import Any

import pytest

from afterwit.dialects.request import LONGEST_TEXT, parse_schema
from afterwit.errors import RequestError

MOST, MORE = "v" * LONGEST_TEXT, "v" * (LONGEST_TEXT + 1)


def schemas(text: str) -> list[dict[str, Any]]:
    """Each with a text that a response must follow."""
    return [
        {"const": text},
        {"enum": ["short", text]},
        {"const": {"description": [text]}},
        {"const": {text: 1}},
        {"type": "string", "pattern": text},
        {"type": "object", "properties": {text: {"type": "string"}}},
        {"type": "object", "patternProperties": {text: {}}},
        {"type": "object", "properties": {"description": {"type": "string", "pattern": text}}},
        {"$defs": {"a": {"anyOf": [{"const": text}]}}, "$ref": "#/$defs/a"},
        {"type": "array", "prefixItems": [{"items": {"const": text}}]},
    ]


@pytest.mark.parametrize("place", range(len(schemas(""))))
def test_a_text_that_the_response_must_follow_has_a_longest_length(place: int):
    assert parse_schema(schemas(MOST)[place], "schema", strict=True).strict
    with pytest.raises(RequestError, match=f"{len(MORE)} characters, more than {LONGEST_TEXT}") as refused:
        parse_schema(schemas(MORE)[place], "schema", strict=True)
    assert (refused.value.status, refused.value.param) == (400, "schema")


@pytest.mark.parametrize("note", ["title", "description", "$comment", "default", "examples"])
def test_what_is_written_for_people_may_be_longer(note: str):
    schema = {"type": "object", note: MORE, "properties": {"a": {"type": "string", note: [MORE]}}}
    assert MORE in parse_schema(schema, "schema", strict=True).schema
