"""Tool calls as the JSON that models write."""

from __future__ import annotations

import json
import re
from typing import Any

from afterwit.wire.model_text.calls.written import WrittenCall, written


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Refuses NaN and Infinity, which are no JSON."""
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')


def ends_in_a_string(text: str) -> bool:
    """Whether a call's text stops inside a JSON string: then an end mark after it belongs to the string."""
    try:
        DECODER.raw_decode(text.strip())
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return False
    return False


def parse_call(text: str) -> list[WrittenCall]:
    """The one call that a text is, alone; empty if it is anything else."""
    calls = parse_calls(text)
    return calls if len(calls) == 1 else []


def parse_calls(text: str) -> list[WrittenCall]:
    """The calls that a text consists of, separated by space or semicolons; empty if it is anything else."""
    calls: list[WrittenCall] = []
    place = _skip(text, 0)
    while place < len(text):
        try:
            data, end = DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            return []
        call = _as_call(data, text[place:end])
        if not call:
            return []
        calls += call
        place = _skip(text, end)
        if text.startswith(";", place):
            place = _skip(text, place + 1)
    return calls


def parse_array(text: str) -> list[WrittenCall]:
    """The calls in the JSON array that a text is; empty if it is anything else."""
    try:
        data = DECODER.decode(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(data, list):
        return []
    calls = [_as_call(call, "") for call in data]
    return [call for (call,) in calls] if all(calls) else []


def object_text(text: str) -> str | None:
    """The text without the white space around it if it is a JSON object, else None."""
    text = text.strip()
    try:
        return text if isinstance(DECODER.decode(text), dict) else None
    except (ValueError, RecursionError):
        return None


def _skip(text: str, place: int) -> int:
    """The first place from `place` on that is not white space."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _as_call(data: Any, text: str) -> list[WrittenCall]:
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        return []
    key = "arguments" if "arguments" in data else "parameters"
    arguments = data.get(key, {})
    if isinstance(arguments, str):
        return written(data["name"], object_text(arguments))
    return written(data["name"], _as_written(text, arguments)) if isinstance(arguments, dict) else []


MOST_LOOKS = 8
"""Most places in a call that are parsed as its arguments. After these, the arguments are serialised again."""


def _as_written(call: str, arguments: dict[str, Any]) -> str:
    """The arguments as the call has them: the client receives what was sampled."""
    for _, found in zip(range(MOST_LOOKS), _ARGUMENTS.finditer(call), strict=False):
        try:
            parsed, end = DECODER.raw_decode(call, found.end())
        except (ValueError, RecursionError):
            continue
        if parsed == arguments:
            return call[found.end() : end]
    return json.dumps(arguments)
