"""Hermes, Qwen2.5, Qwen3, SmolLM3, Granite 4: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from __future__ import annotations

import json

from afterwit.wire.model_text.calls.json_calls import ends_in_a_string, parse_call
from afterwit.wire.model_text.conventions.convention import CallMarks, Convention

BEGIN, END = "<tool_call>", "</tool_call>"


def json_opening(name: str | None, key: str) -> str:
    """A JSON call up to its arguments, which are under `key`, or up to a name that is still to be chosen."""
    opening = '{"name": "'
    return opening if name is None else f'{opening}{json.dumps(name, ensure_ascii=False)[1:]}, "{key}": {{'


HERMES = Convention(
    name="hermes",
    taught_by=lambda template: BEGIN in template,
    calls=(CallMarks(begin=BEGIN, end=END, quotes_end=ends_in_a_string),),
    read=lambda text, schemas: parse_call(text),
    opening=lambda name: f"{BEGIN}\n" + json_opening(name, "arguments"),
)
