"""Content of a message, and of a `custom` call: a string, or what clients send in place of one."""

from __future__ import annotations

import json
from typing import Any

from afterwit.wire.fields import as_object, as_text, wrong_type
from afterwit.wire.omitted import omitted

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of content parts that are text, and the field that holds it."""
_REASONING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})


def text_of(value: Any, where: str) -> str | None:
    """The text of a content, a string or an array of parts; each part is a line of it. None: no content."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(where, "a string or an array of parts", value)
    parts = [_part(part, f"{where}[{index}]") for index, part in enumerate(value)]
    return "\n".join(part for part in parts if part is not None)


def _part(value: Any, where: str) -> str | None:
    """A part's text, None for reasoning: templates get it from its own field, if at all.

    Anything else becomes a note that it was left out.
    """
    if isinstance(value, str):
        return value
    part = as_object(value, where)
    kind = as_text(part.get("type"), f"{where}.type")
    if kind in _REASONING_PARTS:
        return None
    if kind not in _TEXT_PARTS:
        return omitted(kind)
    field = _TEXT_PARTS[kind]
    if field in part and part[field] is None:
        return ""
    return as_text(part.get(field), f"{where}.{field}")


def custom_arguments(value: Any, where: str) -> str:
    """The free text that a call of a `custom` tool has in place of arguments, as the one argument `input`."""
    return json.dumps({"input": "" if value is None else as_text(value, where)}, ensure_ascii=False)
