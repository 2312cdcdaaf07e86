"""Qwen3-Coder, Qwen3.5 and later, Nemotron 3: `<function=name><parameter=key>value</parameter></function>`.

Values are texts without quotes or escapes, which the tool's schema types. A value that begins on a new line
ends on one, and another parameter or the end of the call follows: any other mark in it is its own text.
"""

from __future__ import annotations

import re

from afterwit.chat_format.arguments import MarkedAhead
from afterwit.chat_format.calls import Schemas, WrittenCall, object_of, written
from afterwit.chat_format.convention import CallMarks, Convention

BEGIN, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
_PARAMETER = re.compile(rf"\s*{PARAMETER}([^<>\n]+)>")
_FOLLOWED = rf"(?=\s*(?:{PARAMETER}|{FUNCTION_END}|\Z))"
_LINE_END = re.compile(rf"\n{PARAMETER_END}{_FOLLOWED}")
_END = re.compile(rf"\n?{PARAMETER_END}{_FOLLOWED}")
_NAME = re.compile(r"[^\s<>{}\"]+")


def _read(text: str, schemas: Schemas) -> list[WrittenCall]:
    name, _, rest = text.strip().removeprefix(FUNCTION).partition(">")
    values, behind = _parameters(rest)
    if not _NAME.fullmatch(name) or behind is None or behind.strip() not in ("", FUNCTION_END):
        return []
    return written(name, object_of(values, schemas.get(name)))


def _parameters(text: str) -> tuple[list[tuple[str, str]], str | None]:
    """Names and values, and what follows the last one; None if its value does not end.

    The last end mark may be missing if the end of the call is there.
    """
    values: list[tuple[str, str]] = []
    place = 0
    while begun := _PARAMETER.match(text, place):
        line = text.startswith("\n", begun.end())
        end = (_LINE_END if line else _END).search(text, begun.end())
        if end is None:
            value, closed, _ = text[begun.end() :].rstrip().rpartition(("\n" if line else "") + FUNCTION_END)
            return [*values, (begun[1], value[line:])], "" if closed else None
        values.append((begun[1], text[begun.end() + line : end.start()]))
        place = end.end()
    return values, text[place:]


def _begun(text: str, schemas: Schemas) -> WrittenCall | None:
    """The beginning of a call that ends with the mark of another parameter."""
    name, _, rest = text.strip().removeprefix(FUNCTION).partition(">")
    values, behind = _parameters(rest)
    if behind is None or behind.strip() != PARAMETER:
        return None
    return WrittenCall(name, object_of(values, schemas.get(name)).removesuffix("}"))


def _in_parameter(text: str) -> bool:
    """Whether a call stops inside a value."""
    return _parameters(text.partition(">")[2])[1] is None


def _has_end(text: str) -> bool:
    return text.rstrip().endswith(FUNCTION_END)


def _opening(name: str | None) -> str:
    begun = f"{BEGIN}\n{FUNCTION}"
    return begun if name is None else f"{begun}{name}>\n"


QWEN_XML = Convention(
    name="qwen_xml",
    taught_by=lambda template: FUNCTION in template and PARAMETER in template,
    calls=(
        CallMarks(begin=BEGIN, end=END, quotes_end=_in_parameter, is_whole=_has_end),
        CallMarks(begin=FUNCTION, end=FUNCTION_END, quotes_end=_in_parameter, is_whole=_has_end),
    ),
    read=_read,
    ahead=lambda schemas: MarkedAhead(schemas, PARAMETER, _begun),
    opening=_opening,
)
"""The second marks are those of a model that forgets the first."""
