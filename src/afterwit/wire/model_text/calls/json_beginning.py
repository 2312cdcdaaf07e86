"""A JSON object that is still arriving: how far it is the beginning of one."""

from __future__ import annotations

import re

_SPACE = " \t\n\r"
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_ESCAPE = re.compile(
    r'\\(?:["\\/bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    r"|u(?![dD][89abAB])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4}))"
)
"""Half of a surrogate pair is read with what comes behind it: a pair is one character."""
LONGEST_ESCAPE = len(r"\ud83d\ude00")
_SCALAR = re.compile(
    r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)(?=[ \t\n\r,}\]])"
)
LONGEST_SCALAR = 64
"""Characters of a number that is waited for."""
DEEPEST = 64


class JsonBeginning:
    """Hands on the text of a JSON object as far as it is one, without the brace that ends it.

    Each character is looked at a bounded number of times. What comes in pieces is handed on in pieces that
    cut no escape, no number and no word.
    """

    def __init__(self) -> None:
        self._rest = ""
        """What is not handed on yet."""
        self._within: list[str] = []
        """The brackets that close what is open."""
        self._quoted = False
        self._next = "{"
        """What comes next: "{", ":" and "," themselves, a "name" or a "value"; the "first" of them may be
        missing, so that the end of what is open comes instead."""
        self.over = False
        """Nothing more is handed on: the object has ended, or the text is not one."""

    def push(self, text: str) -> str:
        """What can be handed on with this text."""
        if self.over:
            return ""
        text = self._rest + text
        place = 0
        while place < len(text) and not self.over:
            step = self._in_string(text, place) if self._quoted else self._outside(text, place)
            if step == place:
                break
            place = step
        self._rest = text[place:]
        return text[:place]

    def _in_string(self, text: str, place: int) -> int:
        """The place behind the next part of a string; `place` if more must come, or nothing may."""
        plain = _PLAIN.match(text, place)
        if plain is not None:
            return plain.end()
        if text[place] == '"':
            self._quoted = False
            return place + 1
        escape = _ESCAPE.match(text, place)
        if escape is not None:
            return escape.end()
        self.over = text[place] != "\\" or len(text) - place >= LONGEST_ESCAPE
        return place

    def _outside(self, text: str, place: int) -> int:
        sign = text[place]
        if sign in _SPACE:
            return place + 1
        if sign in "}]":
            return self._close(sign, place)
        if self._next in ("name", "first name") and sign == '"':
            self._quoted, self._next = True, ":"
        elif self._next == ":" and sign == ":":
            self._next = "value"
        elif self._next == "," and sign == ",":
            self._next = "name" if self._within[-1] == "}" else "value"
        elif self._next in ("value", "first value"):
            return self._value(text, place)
        elif self._next == "{" and sign == "{":
            self._open("}")
        else:
            self.over = True
            return place
        return place + 1

    def _value(self, text: str, place: int) -> int:
        sign = text[place]
        if sign == '"':
            self._quoted, self._next = True, ","
        elif sign in "{[" and len(self._within) < DEEPEST:
            self._open("}" if sign == "{" else "]")
        else:
            scalar = _SCALAR.match(text, place)
            if scalar is None:
                self.over = len(text) - place > LONGEST_SCALAR
                return place
            self._next = ","
            return scalar.end()
        return place + 1

    def _open(self, end: str) -> None:
        self._within.append(end)
        self._next = "first name" if end == "}" else "first value"

    def _close(self, sign: str, place: int) -> int:
        ends = self._next in (",", "first name", "first value")
        if not ends or not self._within or sign != self._within[-1] or len(self._within) == 1:
            self.over = True
            return place
        self._within.pop()
        self._next = ","
        return place + 1
