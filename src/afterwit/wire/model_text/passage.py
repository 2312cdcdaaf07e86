"""A passage of text that streams until a mark ends it."""

from __future__ import annotations


class Passage:
    """Hands on what cannot belong to the mark, nor to the white space before it, which is dropped.

    Its time is proportional to the text, however the text is cut into pieces. Without a mark (""), all text
    is handed on at once.
    """

    def __init__(self, mark: str, *, trim: bool) -> None:
        self._mark = mark
        self._trim = trim
        """Drop white space until the first text."""
        self._space: list[str] = []
        """White space that was not handed on."""
        self._tail = ""
        """The beginning of what may become the mark."""

    def push(self, text: str) -> tuple[str, str | None]:
        """What can be handed on, and what follows the mark: None until the mark comes."""
        if not self._mark:
            return self._trimmed(text), None
        text = self._tail + text
        before, found, after = text.partition(self._mark)
        if found:
            return self._clear(before), after
        cut = _possible_mark(text, self._mark)
        self._tail = text[cut:]
        return self._clear(text[:cut]), None

    def finish(self) -> str:
        """Everything that was held back: the mark did not come."""
        return self._trimmed("".join(self._space) + self._tail)

    def _clear(self, text: str) -> str:
        """The text with the white space held back before it, without the white space at its end."""
        text = self._trimmed(text)
        core = text.rstrip()
        if not core:
            self._space.append(text)
            return ""
        cleared = "".join(self._space) + core
        self._space = [text[len(core) :]]
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
