"""Kimi K2: calls whose ids hold the name, as `functions.read:0`, all of them in a section."""

from __future__ import annotations

import re

from afterwit.chat_format.arguments import Head, JsonAhead
from afterwit.chat_format.calls import Schemas, WrittenCall, ends_in_a_string, object_text, written
from afterwit.chat_format.convention import CallMarks, Convention

ALL_BEGIN, ALL_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
BEGIN, ARGUMENTS, END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_ID = re.compile(r"(?:functions\.)?([^\s:<>{}]+)(?::\d+)?")
_HEAD = re.compile(rf"\s*{_ID.pattern}\s*{re.escape(ARGUMENTS)}\s*(?=\{{)")


def _read(text: str, schemas: Schemas) -> list[WrittenCall]:
    id, _, arguments = text.partition(ARGUMENTS)
    found = _ID.fullmatch(id.strip())
    return written(found[1], object_text(arguments)) if found else []


def _head(text: str) -> Head | None:
    found = _HEAD.match(text)
    return Head(found[1], found.end()) if found else None


def _opening(name: str | None) -> str:
    return f"{ALL_BEGIN}{BEGIN}functions." + (f"{name}:" if name else "")


KIMI = Convention(
    name="kimi",
    taught_by=lambda template: ALL_BEGIN in template,
    calls=(
        CallMarks(
            begin=BEGIN, end=END, quotes_end=lambda text: ends_in_a_string(text.partition(ARGUMENTS)[2])
        ),
    ),
    wrappers=(ALL_BEGIN, ALL_END),
    read=_read,
    ahead=lambda schemas: JsonAhead(schemas, _head),
    opening=_opening,
    inner=(ARGUMENTS,),
)
