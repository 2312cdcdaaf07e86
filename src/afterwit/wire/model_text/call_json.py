"""Tool calls as the JSON that models write, and whether it is one."""

from __future__ import annotations

import json
import re
from typing import Any


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def ends_in_a_string(body: str) -> bool:
    """Whether a call's text ends inside a JSON string: then what closes it belongs to the string."""
    try:
        _DECODER.raw_decode(body.strip())
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return False
    return False


def parse_call(body: str) -> tuple[str, str] | None:
    """Name and arguments of one call, None where the text is none."""
    calls = parse_calls(body)
    return calls[0] if len(calls) == 1 else None


def parse_calls(text: str) -> list[tuple[str, str]]:
    """The calls that a text consists of, empty where it is anything else."""
    calls, text = [], text.strip()
    while text:
        try:
            data, end = _DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            return []
        call = _as_call(data, text[:end])
        if call is None:
            return []
        calls.append(call)
        text = text[end:].lstrip().removeprefix(";").lstrip()
    return calls


def _as_call(data: Any, written: str) -> tuple[str, str] | None:
    if not isinstance(data, dict) or not isinstance(data.get("name"), str) or not data["name"]:
        return None
    key = "arguments" if "arguments" in data else "parameters"
    arguments = data.get(key, {})
    if isinstance(arguments, str):
        return (data["name"], arguments) if _is_object(arguments) else None
    if not isinstance(arguments, dict):
        return None
    return data["name"], _as_written(written, key, arguments)


def _is_object(text: str) -> bool:
    try:
        return isinstance(_DECODER.decode(text), dict)
    except (ValueError, RecursionError):
        return False


def _as_written(call: str, key: str, arguments: dict[str, Any]) -> str:
    """The arguments' own text within a call's: what was sampled is what the client receives."""
    for found in re.finditer(rf'"{key}"\s*:\s*', call):
        try:
            parsed, end = _DECODER.raw_decode(call, found.end())
        except ValueError:
            continue
        if parsed == arguments:
            return call[found.end() : end]
    return json.dumps(arguments, ensure_ascii=False)
