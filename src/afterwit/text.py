"""Small helpers: numbers in words, JSON that any reader accepts, the common prefix of ids."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_LISTED = 20
"""Numbers in one sentence."""
IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Chinese and Japanese, as a range of a pattern. Their words are not divided by spaces."""

_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = re.compile(rf"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}")
"""In JSON text without escaped backslashes: half of a surrogate pair."""

_BREAKS = [(sign.encode(), b"\\u%04x" % ord(sign)) for sign in "\x85\u2028\u2029"]


def counted(number: int, noun: str) -> str:
    """ "1 turn", "2,000 turns"."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"


def size_in_words(size: int) -> str:
    """`1.5 GiB`, `12 KiB`, `90 B`."""
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}"
    return f"{size / 2**10:.0f} KiB" if size >= 2**10 else f"{size} B"


def signed(value: int) -> str:
    """A reward or a vote: "+1", "0", "-1"."""
    return f"{value:+d}" if value else "0"


def is_seen(text: str) -> bool:
    """Whether a reader sees any of it: white space, controls and zero-width spaces are not seen."""
    return any(letter.isprintable() and letter != " " for letter in text)


def listed(numbers: Sequence[int]) -> str:
    """ "0, 1, 2"; of many only the last ones, after an ellipsis."""
    shown = [str(number) for number in numbers[-MOST_LISTED:]]
    return ", ".join(["..."] * (len(numbers) > MOST_LISTED) + shown)


def prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common prefix. Bisected, because comparing slices is far faster than single ids."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def one_line(json_bytes: bytes) -> bytes:
    r"""JSON without the raw line breaks of Unicode: `\u2028` and its like are escaped.

    JSON allows them in texts, but readers of line after line that know Unicode, Python's `splitlines` among
    them, would break there.
    """
    if json_bytes.isascii():
        return json_bytes
    for raw, escaped in _BREAKS:
        json_bytes = json_bytes.replace(raw, escaped)
    return json_bytes


def without_halves(json_text: str) -> str:
    r"""The JSON text with `\ufffd` for each escaped half of a surrogate pair.

    `"\ud83d"` alone is valid JSON, but not a character: no tokenizer, hash or UTF-8 accepts it. Clients write
    it when they cut a text inside an emoji, and models can write it too.
    """
    if "\0" in json_text:  # no JSON
        return json_text
    marked = json_text.replace(r"\\", "\0")  # each other backslash begins an escape
    return _HALF.sub(r"\\ufffd", marked).replace("\0", r"\\")
