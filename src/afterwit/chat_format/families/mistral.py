"""Mistral: `[TOOL_CALLS]` before one JSON array of calls, or newer, before each call as `name[ARGS]{...}`."""

from __future__ import annotations

import re

from afterwit.chat_format.arguments import Head, JsonAhead
from afterwit.chat_format.calls import Schemas, WrittenCall, object_text, parse_array, parse_call, written
from afterwit.chat_format.convention import THINK, CallMarks, Convention, Thought
from afterwit.chat_format.families.hermes import json_head, json_opening

BEGIN, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
MAGISTRAL = Thought(begin="[THINK]", end="[/THINK]", closing="[/THINK]")
_NAMED = re.compile(r"\s*([^\s\[\]{}]+)(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?\s*(?=\{)")


def _read(text: str, schemas: Schemas) -> list[WrittenCall]:
    named = _NAMED.match(text)
    if named is not None:
        return written(named[1], object_text(text[named.end() :]))
    return parse_array(text) or parse_call(text)


def _head(text: str) -> Head | None:
    named = _NAMED.match(text)
    return Head(named[1], named.end()) if named else json_head(text)


def _named_opening(name: str | None) -> str:
    return BEGIN if name is None else f"{BEGIN}{name}{ARGUMENTS}{{"


MISTRAL = Convention(
    name="mistral",
    taught_by=lambda template: BEGIN in template and ARGUMENTS not in template,
    thoughts=(MAGISTRAL, THINK),
    calls=(CallMarks(begin=BEGIN),),
    read=_read,
    ahead=lambda schemas: JsonAhead(schemas, _head),
    opening=lambda name: f"{BEGIN} [" + json_opening(name, "arguments"),
)

MISTRAL_ARGS = Convention(
    name="mistral_args",
    taught_by=lambda template: BEGIN in template and ARGUMENTS in template,
    thoughts=(MAGISTRAL, THINK),
    calls=(CallMarks(begin=BEGIN),),
    read=_read,
    ahead=lambda schemas: JsonAhead(schemas, _head),
    opening=_named_opening,
    inner=(ARGUMENTS, CALL_ID),
)
