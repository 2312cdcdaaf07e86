"""Hermes, Qwen2.5, Qwen3, SmolLM3, Granite 4: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from __future__ import annotations

import json
import re

from afterwit.chat_format.arguments import Head, JsonAhead
from afterwit.chat_format.calls import ends_in_a_string, parse_call
from afterwit.chat_format.convention import CallMarks, Convention

BEGIN, END = "<tool_call>", "</tool_call>"

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\\x00-\x1f]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
"""Of a call that names its tool first."""


def json_head(text: str) -> Head | None:
    """Where the arguments begin in a JSON call."""
    found = _HEAD.match(text)
    return Head(found[1], found.end()) if found else None


def json_opening(name: str | None, key: str) -> str:
    """A JSON call up to its arguments, which are under `key`, or up to a name that is still to be chosen."""
    opening = '{"name": "'
    return opening if name is None else f'{opening}{json.dumps(name, ensure_ascii=False)[1:]}, "{key}": {{'


HERMES = Convention(
    name="hermes",
    taught_by=lambda template: BEGIN in template,
    calls=(CallMarks(begin=BEGIN, end=END, quotes_end=ends_in_a_string),),
    read=lambda text, schemas: parse_call(text),
    ahead=lambda schemas: JsonAhead(schemas, json_head),
    opening=lambda name: f"{BEGIN}\n" + json_opening(name, "arguments"),
)
