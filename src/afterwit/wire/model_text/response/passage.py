"""A passage of text that streams until a mark ends it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class Cleared(NamedTuple):
    """What can be handed on, then the mark that ended the passage (None until one comes) and what follows."""

    text: str
    mark: str | None
    rest: str


class Passage:
    """Hands on what cannot belong to a mark, nor to the white space before it, which is dropped.

    Its time is proportional to the text, however the text is cut into pieces. Without marks, all text is
    handed on at once.
    """

    def __init__(self, marks: Sequence[str], *, trim: bool) -> None:
        self._marks = marks
        self._found = re.compile("|".join(map(re.escape, marks))) if marks else None
        self._firsts = frozenset(mark[0] for mark in marks)
        self._trim = trim
        """Drop white space until the first text."""
        self._space: list[str] = []
        """White space that was not handed on."""
        self._tail = ""
        """The beginning of what may become a mark."""

    def push(self, text: str) -> Cleared:
        """Reads more text."""
        if self._found is None:
            return Cleared(self._trimmed(text), None, "")
        if not self._tail and self._firsts.isdisjoint(text):
            return Cleared(self._clear(text), None, "")
        text = self._tail + text
        found = self._found.search(text)
        if found:
            return Cleared(self._clear(text[: found.start()]), found[0], text[found.end() :])
        cut = min(_possible_mark(text, mark) for mark in self._marks)
        self._tail = text[cut:]
        return Cleared(self._clear(text[:cut]), None, "")

    @property
    def dropped(self) -> str:
        """The white space before the mark."""
        return "".join(self._space)

    def finish(self) -> str:
        """Everything that was held back: no mark came."""
        return self._trimmed("".join(self._space) + self._tail)

    def _clear(self, text: str) -> str:
        """The text with the white space held back before it, without the white space at its end."""
        if self._trim:
            text = self._trimmed(text)
        core = text.rstrip()
        if not core:
            self._space.append(text)
            return ""
        cleared = "".join((*self._space, core)) if self._space else core
        self._space = [text[len(core) :]] if len(core) < len(text) else []
        return cleared

    def _trimmed(self, text: str) -> str:
        text = text.lstrip() if self._trim else text
        self._trim = self._trim and not text
        return text


def _possible_mark(text: str, mark: str) -> int:
    """Where the longest end of the text begins that may become the mark; the text's length if none may.

    A mark's first character is in it once, so only the last one in the text can begin it.
    """
    begun = text.rfind(mark[0], -len(mark))
    return begun if begun >= 0 and mark.startswith(text[begun:]) else len(text)
