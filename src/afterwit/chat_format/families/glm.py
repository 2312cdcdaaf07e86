"""GLM 4.5 and later: `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`.

Texts are written without quotes or escapes and everything else as JSON; the tool's schema tells them apart.
"""

from __future__ import annotations

import re

from afterwit.chat_format.arguments import MarkedAhead
from afterwit.chat_format.calls import Schemas, WrittenCall, object_of, written
from afterwit.chat_format.convention import CallMarks, Convention, Thought, never

BEGIN, END = "<tool_call>", "</tool_call>"
VALUE, VALUE_END = "<arg_value>", "</arg_value>"

_NEXT = re.compile(rf"(?:\A|{VALUE_END})\s*<arg_key>([^<>]+)</arg_key>\s*{VALUE}")
"""What begins a value: the call's beginning or the end of another value comes before its key."""

_NAME = re.compile(r"\s*([^\s<>{}\"]+)\s*")

_LINES = "</arg_key>\n<arg_value>"
"""GLM 4.5 and 4.6 write each part on a line of its own, later ones do not."""


def _read(text: str, schemas: Schemas) -> list[WrittenCall]:
    name, values = _parameters(text)
    return [] if values is None else written(name, object_of(values, schemas.get(name)))


def _parameters(text: str) -> tuple[str, list[tuple[str, str]] | None]:
    """The name of a call, and its parameters by name; None if the text is no call."""
    named = _NAME.match(text)
    if named is None:
        return "", None
    rest = text[named.end() :].rstrip()
    begins = list(_NEXT.finditer(rest))
    if begins[0].start() > 0 if begins else rest:
        return "", None
    ends = [found.start() for found in begins[1:]] + [len(rest)] * bool(begins)
    return named[1], [
        (found[1].strip(), rest[found.end() : end].removesuffix(VALUE_END))
        for found, end in zip(begins, ends, strict=True)
    ]


def _begun(text: str, schemas: Schemas) -> WrittenCall | None:
    """The beginning of a call that ends with the mark of a value."""
    name, values = _parameters(text)
    if not values or values[-1][1]:  # the mark is in a value
        return None
    return WrittenCall(name, object_of(values[:-1], schemas.get(name)).removesuffix("}"))


def _in_value(text: str) -> bool:
    """Whether a call stops inside a value."""
    return text.rfind(VALUE) > text.rfind(VALUE_END)


def _glm(name: str, *, lines: bool) -> Convention:
    return Convention(
        name=name,
        taught_by=lambda template: "<arg_key>" in template and (_LINES in template) is lines,
        thoughts=(Thought(begin="<think>", end="</think>", closing="</think>\n" if lines else "</think>"),),
        calls=(CallMarks(begin=BEGIN, end=END, quotes_end=_in_value, is_whole=never),),
        read=_read,
        ahead=lambda schemas: MarkedAhead(schemas, VALUE, _begun),
        opening=lambda tool: BEGIN + (tool or "") + ("\n" if lines and tool else ""),
    )


GLM_LINES = _glm("glm45", lines=True)
GLM = _glm("glm", lines=False)
