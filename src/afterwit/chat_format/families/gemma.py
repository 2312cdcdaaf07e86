"""Gemma 4: `<|tool_call>call:name{key:<|"|>text<|"|>,other:[1,true]}<tool_call|>`.

Texts are between marks of their own, without escapes; keys have no quotes. Gemma 3's own template teaches no
calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from afterwit.chat_format.arguments import MarkedAhead
from afterwit.chat_format.calls import Schemas, WrittenCall, object_text, written
from afterwit.chat_format.convention import CallMarks, Convention, Thought

BEGIN, END, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
CHANNEL = Thought(begin="<|channel>thought\n", end="<channel|>", closing="<channel|>")
_CALL = re.compile(r"\s*call:([^\s{}]+)\s*(?=\{)")
_KEY = re.compile(r"([{,])([^{}\[\],:\"]+):")


def _read(text: str, schemas: Schemas) -> list[WrittenCall]:
    named = _CALL.match(text)
    return written(named[1], _as_json(text[named.end() :])) if named else []


def _as_json(text: str) -> str | None:
    """The notation as JSON. None if it is no object."""
    parts = text.split(QUOTE)
    return object_text(_joined(parts)) if len(parts) % 2 else None


def _joined(parts: Sequence[str]) -> str:
    """What is between the quotes as JSON: every other part of it is a text."""
    return "".join(
        json.dumps(part, ensure_ascii=False) if place % 2 else _KEY.sub(_quoted_key, part)
        for place, part in enumerate(parts)
    )


def _begun(text: str, schemas: Schemas) -> WrittenCall | None:
    """The beginning of a call that ends with a quote."""
    named = _CALL.match(text)
    return WrittenCall(named[1], _joined(text[named.end() :].split(QUOTE)[:-1])) if named else None


def _quoted_key(found: re.Match[str]) -> str:
    return f"{found[1]}{json.dumps(found[2].strip(), ensure_ascii=False)}:"


GEMMA = Convention(
    name="gemma",
    taught_by=lambda template: BEGIN in template,
    thoughts=(CHANNEL,),
    calls=(CallMarks(begin=BEGIN, end=END, quotes_end=lambda text: text.count(QUOTE) % 2 == 1),),
    read=_read,
    ahead=lambda schemas: MarkedAhead(schemas, QUOTE, _begun),
    opening=lambda name: f"{BEGIN}call:" + (f"{name}{{" if name else ""),
    inner=(QUOTE,),
)
