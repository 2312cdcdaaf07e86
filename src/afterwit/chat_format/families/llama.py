"""Llama: the whole response is calls, as JSON (Llama 3) or as a Python list (Llama 4).

Llama 4's own template asks for JSON and its documentation for a list, so that its models write both.
"""

from __future__ import annotations

import re

from afterwit.chat_format.arguments import Head, JsonAhead
from afterwit.chat_format.calls import Schemas, WrittenCall, parse_calls, parse_python
from afterwit.chat_format.convention import Convention
from afterwit.chat_format.families.hermes import json_head, json_opening

PYTHON_TAG = "<|python_tag|>"
PYTHON_START, PYTHON_END = "<|python_start|>", "<|python_end|>"
_BEFORE = re.compile(rf"\s*(?:{re.escape(PYTHON_TAG)}|{re.escape(PYTHON_START)})")

_TAUGHT_LIST = re.compile(r"\[func_?(?:tion_)?name1?\(")
"""As in `[func_name1(params_name1=params_value1), func_name2(params)]`."""


def _read_list(text: str, schemas: Schemas) -> list[WrittenCall]:
    text = text.strip().removeprefix(PYTHON_START).removesuffix(PYTHON_END)
    return parse_python(text)


def _read_either(text: str, schemas: Schemas) -> list[WrittenCall]:
    return _read_list(text, schemas) or parse_calls(text.replace(PYTHON_START, "").replace(PYTHON_END, ""))


def _head(text: str) -> Head | None:
    """Of a response that begins with a call in JSON."""
    before = _BEFORE.match(text)
    begun = before.end() if before else 0
    head = json_head(text[begun:])
    return None if head is None else head._replace(place=begun + head.place)


def _list_opening(name: str | None) -> str:
    return "[" if name is None else f"[{name}("


LLAMA = Convention(
    name="llama",
    taught_by=lambda template: (
        '"parameters"' in template and ("ipython" in template or PYTHON_TAG in template)
    ),
    openings=("{", PYTHON_TAG),
    read=lambda text, schemas: parse_calls(text.strip().removeprefix(PYTHON_TAG)),
    ahead=lambda schemas: JsonAhead(schemas, _head),
    opening=lambda name: json_opening(name, "parameters"),
)

LLAMA4 = Convention(
    name="llama4",
    taught_by=lambda template: "<|header_start|>" in template,
    openings=("[", "{", PYTHON_START),
    read=_read_either,
    ahead=lambda schemas: JsonAhead(schemas, _head),
    opening=_list_opening,
    inner=(PYTHON_END,),
)

PYTHONIC = Convention(
    name="pythonic",
    taught_by=lambda template: _TAUGHT_LIST.search(template) is not None,
    openings=("[",),
    read=_read_list,
    opening=_list_opening,
)
"""Llama 3.2, ToolACE, and templates that people write for Gemma 3."""
