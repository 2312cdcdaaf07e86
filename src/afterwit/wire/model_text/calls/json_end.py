"""Where a JSON value ends in a text that is still arriving."""

from __future__ import annotations

import re

_STRUCTURE = re.compile(r'["{}[\]]')
_STRING = re.compile(r'["\\]')


class JsonEnd:
    """Finds the end of the value that a text holds behind a name. Each character is looked at once.

    The value is an array or object that the text begins with, or else the first object in it: a name before
    it may have square brackets.
    """

    def __init__(self) -> None:
        self._begun = False
        self._named = False
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def find(self, text: str) -> int | None:
        """The place in this piece behind the value's last character; None until it comes."""
        place = 0
        if not self._begun:
            place = self._beginning(text)
        while place < len(text):
            if self._quoted:
                place = self._in_string(text, place)
                continue
            found = _STRUCTURE.search(text, place)
            if found is None:
                return None
            place = found.end()
            if found[0] == '"':
                self._quoted = True
                continue
            self._depth += 1 if found[0] in "{[" else -1
            if self._depth == 0:
                return place
        return None

    def _beginning(self, text: str) -> int:
        """Where the value begins in this piece; its length if it does not."""
        place = len(text) - len(text.lstrip())
        if not self._named and text[place : place + 1] == "[":
            self._begun = True
            return place
        self._named = self._named or place < len(text)
        place = text.find("{")
        self._begun = place >= 0
        return place if self._begun else len(text)

    def _in_string(self, text: str, place: int) -> int:
        """The place behind the next quote or backslash, and what an open backslash takes."""
        if self._escaped:
            self._escaped = False
            return place + 1
        found = _STRING.search(text, place)
        if found is None:
            return len(text)
        self._escaped = found[0] == "\\"
        self._quoted = self._escaped
        return found.end()
