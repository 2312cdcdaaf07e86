"""DeepSeek V3, R1 and V3.1: calls between full-width marks, all of them between two more."""

from __future__ import annotations

import re

from afterwit.chat_format.arguments import Head, JsonAhead
from afterwit.chat_format.calls import Schemas, WrittenCall, ends_in_a_string, object_text, written
from afterwit.chat_format.convention import CallMarks, Convention

ALL_BEGIN, ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
BEGIN, SEPARATOR, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
TYPE, FENCE = "function", "```"
_HEAD = re.compile(rf"\s*(?:{TYPE}\s*{SEPARATOR}([^{{`]+){FENCE}json|([^{{]*?){SEPARATOR})\s*(?=\{{)")


def _read(text: str, schemas: Schemas) -> list[WrittenCall]:
    """`name SEPARATOR {...}`, or before V3.1 `function SEPARATOR name` and the arguments in a fence."""
    name, found, rest = text.strip().partition(SEPARATOR)
    if not found:
        return []
    head, fence, fenced = rest.partition(f"{FENCE}json")
    if fence and name == TYPE and "{" not in head:
        return written(head.strip(), object_text(fenced.strip().removesuffix(FENCE)))
    return written(name.strip(), object_text(rest))


def _head(text: str) -> Head | None:
    found = _HEAD.match(text)
    return Head((found[1] or found[2]).strip(), found.end()) if found else None


def _in_argument(text: str) -> bool:
    """Whether a call stops inside a string of its arguments."""
    arguments = text.find("{")
    return arguments >= 0 and ends_in_a_string(text[arguments:])


def _fenced_opening(name: str | None) -> str:
    begun = f"{ALL_BEGIN}{BEGIN}{TYPE}{SEPARATOR}"
    return begun if name is None else f"{begun}{name}\n{FENCE}json\n{{"


def _plain_opening(name: str | None) -> str:
    begun = f"{ALL_BEGIN}{BEGIN}"
    return begun if name is None else f"{begun}{name}{SEPARATOR}{{"


_CALLS = (CallMarks(begin=BEGIN, end=END, quotes_end=_in_argument),)

DEEPSEEK_V3 = Convention(
    name="deepseek_v3",
    taught_by=lambda template: BEGIN in template and f"{FENCE}json" in template,
    calls=_CALLS,
    wrappers=(ALL_BEGIN, ALL_END),
    read=_read,
    ahead=lambda schemas: JsonAhead(schemas, _head),
    opening=_fenced_opening,
    inner=(SEPARATOR,),
)

DEEPSEEK_V31 = Convention(
    name="deepseek_v31",
    taught_by=lambda template: BEGIN in template and f"{FENCE}json" not in template,
    calls=_CALLS,
    wrappers=(ALL_BEGIN, ALL_END),
    read=_read,
    ahead=lambda schemas: JsonAhead(schemas, _head),
    opening=_plain_opening,
    inner=(SEPARATOR,),
)
