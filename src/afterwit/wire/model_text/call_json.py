"""Tool calls as the JSON that models write."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple


class WrittenCall(NamedTuple):
    """A call as the model wrote it; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')
_SURROGATE = re.compile("[\ud800-\udfff]")


def ends_in_a_string(text: str) -> bool:
    """Whether a call's text stops inside a JSON string: then an end mark after it belongs to the string."""
    try:
        _DECODER.raw_decode(text.strip())
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return False
    return False


def parse_call(text: str) -> WrittenCall | None:
    """The one call that a text is, None if it is anything else."""
    calls = parse_calls(text)
    return calls[0] if len(calls) == 1 else None


def parse_calls(text: str) -> list[WrittenCall]:
    """The calls that a text consists of, separated by space or semicolons; empty if it is anything else."""
    calls: list[WrittenCall] = []
    place = _skip(text, 0)
    while place < len(text):
        try:
            data, end = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            return []
        call = _as_call(data, text[place:end])
        if call is None:
            return []
        calls.append(call)
        place = _skip(text, end)
        if text.startswith(";", place):
            place = _skip(text, place + 1)
    return calls


def _skip(text: str, place: int) -> int:
    """The first place from `place` on that is not white space."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _as_call(data: Any, written: str) -> WrittenCall | None:
    if not isinstance(data, dict) or not isinstance(data.get("name"), str) or not data["name"]:
        return None
    key = "arguments" if "arguments" in data else "parameters"
    arguments = data.get(key, {})
    if isinstance(arguments, dict):
        arguments = _as_written(written, arguments)
    elif not isinstance(arguments, str) or not _is_object(arguments):
        return None
    # half a surrogate pair cannot be sent to the client
    return None if _SURROGATE.search(data["name"] + arguments) else WrittenCall(data["name"], arguments)


def _is_object(text: str) -> bool:
    try:
        return isinstance(_DECODER.decode(text), dict)
    except (ValueError, RecursionError):
        return False


MOST_LOOKS = 8
"""Most places in a call that are parsed as its arguments. After these, the arguments are serialised again."""


def _as_written(call: str, arguments: dict[str, Any]) -> str:
    """The arguments as the call has them: the client receives what was sampled."""
    for _, found in zip(range(MOST_LOOKS), _ARGUMENTS.finditer(call), strict=False):
        try:
            parsed, end = _DECODER.raw_decode(call, found.end())
        except (ValueError, RecursionError):
            continue
        if parsed == arguments:
            return call[found.end() : end]
    return json.dumps(arguments)
