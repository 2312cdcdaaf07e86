"""Ids of turns, and of responses and tool calls, which contain their turn's id."""

from __future__ import annotations

import re

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32, lower-case."""

_TO_INT = str.maketrans(_DIGITS, "0123456789abcdefghijklmnopqrstuv")
"""Into the digits that `int` reads."""

_TURN_LENGTH = 26
ENTROPY_BYTES = 10

MOST_CALLS = 32**2
"""Tool calls of one response: two digits of an id number them."""

STORED_PREFIX = "call"
"""The prefix of tool-call ids in the store, for all dialects."""

_PREFIXES = (STORED_PREFIX, "toolu")
"""The prefixes of tool-call ids in all dialects."""

_CALL = re.compile(
    rf"(?<![0-9a-z])({'|'.join(_PREFIXES)})[^0-9a-z]?"
    rf"([{_DIGITS}]{{{_TURN_LENGTH}}})([{_DIGITS}]{{2}})(?![0-9a-z])"
)
"""In a lower-case id. A client may have put ours into one of its own, between signs."""

_IN_TEXT = tuple(re.compile(rf"{prefix}(?<!\w{prefix})_?[0-9a-z]{{28}}\b") for prefix in _PREFIXES)
"""In lower-case text. Each begins with letters alone, which is many times faster to look for."""

_NOT_ALPHANUMERIC = re.compile(r"[^0-9a-z]")

_RESPONSE_PREFIX = re.compile(r"\A[a-z]+[-_]")
"""A dialect's prefix of the turn id, such as `chatcmpl-`."""


def turn_id(now: float, entropy: bytes) -> str:
    """A turn's id: 26 lower-case letters and digits that sort by time. `entropy` is 10 random bytes."""
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"a turn id takes {ENTROPY_BYTES} bytes of entropy, not {len(entropy)}")
    number = (int(now * 1000) & (1 << 48) - 1) << 8 * ENTROPY_BYTES | int.from_bytes(entropy)
    return _base32(number, _TURN_LENGTH)


def digest_id(digest: bytes) -> str:
    """A turn's id from 16 bytes of a hash of its content: 26 lower-case letters and digits.

    Raises ValueError for another length.
    """
    if len(digest) != 16:
        raise ValueError(f"an id takes 16 bytes of a hash, not {len(digest)}")
    return _base32(int.from_bytes(digest), _TURN_LENGTH)


def choice_turn(turn: str, index: int) -> str:
    """The turn of a response's choice `index`: the first choice's id plus `index`.

    Raises ValueError if `turn` is not a turn id.
    """
    if len(turn) != _TURN_LENGTH or not set(turn) <= set(_DIGITS):
        raise ValueError("a turn id is 26 lower-case letters and digits")
    return _base32(int(turn.translate(_TO_INT), 32) + index, _TURN_LENGTH)


def turn_of_response(response: str) -> str:
    """The turn that a response id names, whatever its dialect's prefix; a bare turn id names itself.

    The beginning of a response id gives the beginning of the turn's.
    """
    return _RESPONSE_PREFIX.sub("", response)


def call_id(turn: str, index: int) -> str:
    """The id of a turn's tool call: letters and digits only, because clients drop the rest.

    Raises ValueError from index MOST_CALLS on.
    """
    return STORED_PREFIX + turn + _base32(index, 2)


def plain_id(identifier: str) -> str:
    """A tool-call id as it is compared: lower-case letters and digits. One that holds ours is ours."""
    lower = identifier.lower()
    found = _CALL.search(lower)
    return _NOT_ALPHANUMERIC.sub("", lower if found is None else found[0])


def turn_of_call(identifier: str) -> str | None:
    """The turn whose tool call this is; None if the id is not one of ours, and holds none."""
    found = _CALL.search(identifier.lower())
    return found[2] if found else None


def calls_in(text: str) -> list[str]:
    """Possible tool-call ids of ours inside a text, in lower case. Check them with `turn_of_call`."""
    lower = text.lower()
    found = [match for pattern in _IN_TEXT for match in pattern.finditer(lower)]
    return [match[0] for match in sorted(found, key=re.Match.start)]


def with_prefix(prefix: str, identifier: str) -> str:
    """A tool-call id of ours in another dialect's form; any other id as it is."""
    found = _CALL.search(identifier.lower())
    return prefix + found[2] + found[3] if found else identifier


def _base32(number: int, length: int) -> str:
    if not 0 <= number < 32**length:
        raise ValueError(f"{number} does not fit {length} digits")
    return "".join(_DIGITS[number >> 5 * place & 31] for place in reversed(range(length)))
