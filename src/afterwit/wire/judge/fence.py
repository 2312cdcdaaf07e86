"""Fences around untrusted text, and cutting it to size with a note."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fence:
    """Fence lines and notes with a code that is in none of the fenced texts."""

    code: str

    @classmethod
    def around(cls, texts: Iterable[str]) -> Fence:
        """The fence for these texts. The same texts get the same fence."""
        whole = "\n".join(texts)
        code = _digest(whole)
        while code in whole:
            code = _digest(code)
        return cls(code)

    def block(self, title: str, text: str) -> str:
        """A text between its fence lines."""
        return f"[BEGIN {self.code} {title}]\n{text or self.note('nothing')}\n[END {self.code}]"

    def note(self, words: str) -> str:
        """A note of ours among the data."""
        return f"[{self.code} {words}]"

    def head(self, text: str, limit: int) -> str:
        """At most the first `limit` characters, with a note if some are left out."""
        return text if len(text) <= limit else f"{text[:limit]}\n{self._left_out(len(text) - limit)}"

    def tail(self, text: str, limit: int) -> str:
        """At most the last `limit` characters."""
        return text if len(text) <= limit else f"{self._left_out(len(text) - limit)}\n{text[-limit:]}"

    def middle(self, text: str, limit: int) -> str:
        """At most `limit` characters from both ends: how a text begins and ends."""
        if len(text) <= limit:
            return text
        first = limit - limit // 2
        last = text[len(text) - limit // 2 :]
        return f"{text[:first]}\n{self._left_out(len(text) - limit)}\n{last}"

    def _left_out(self, characters: int) -> str:
        return self.note(f"{characters} characters left out")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def shares(lengths: Sequence[int], total: int) -> list[int]:
    """Room for texts of these lengths, `total` in all: short ones whole, long ones alike, each at least 1."""
    room = [0] * len(lengths)
    left = total
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    for rank, at in enumerate(by_length):
        room[at] = max(1, min(lengths[at], left // (len(lengths) - rank)))
        left -= room[at]
    return room
