"""The arguments of a call while it is being written: what can be sent before its end.

They are the beginning of the arguments that the whole call will have, if it can be read. Their last brace is
held back until then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from afterwit.chat_format.calls import Schemas, WrittenCall

LONGEST_HEAD = 1024
"""Characters before the arguments. A call with a longer head is read as a whole."""

MOST_LOOKS = 32
"""Marks within a call at which its parameters are read; each costs a reading of the whole call."""

_SPACE = " \t\n\r"
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')

_ESCAPE = re.compile(
    r'\\(?:["\\/bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    r"|u(?![dD][89abAB])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4}))"
)
"""Half of a surrogate pair is read with the text after it: a pair is one character."""

LONGEST_ESCAPE = len(r"\ud83d\ude00")

_SCALAR = re.compile(
    r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)(?=[ \t\n\r,}\]])"
)

LONGEST_SCALAR = 64
"""Characters of a number or word that may still be incomplete."""

DEEPEST = 64


class Ahead(Protocol):
    """Reads one call that is still being written."""

    def push(self, text: str) -> WrittenCall | None:
        """The name and more of the arguments; None if nothing new can be sent."""
        ...


class _NotAhead:
    def push(self, text: str) -> WrittenCall | None:
        return None


NOT_AHEAD = _NotAhead()
"""For calls whose arguments are known only at their end."""


class Head(NamedTuple):
    """The name of a call, and the place where the JSON object of its arguments begins."""

    name: str
    place: int


def head_of(pattern: re.Pattern[str]) -> Callable[[str], Head | None]:
    """Finds the head of a call that matches the pattern, whose last group is the name."""

    def find(text: str) -> Head | None:
        found = pattern.match(text)
        return Head(found[found.lastindex or 0].strip(), found.end()) if found else None

    return find


class JsonAhead:
    """For calls whose arguments are the text of a JSON object, unchanged.

    `head_of` finds the object in the beginning of a call; None if it has not begun.
    """

    def __init__(self, schemas: Schemas, head_of: Callable[[str], Head | None]) -> None:
        self._schemas, self._head_of = schemas, head_of
        self._held = ""
        """The text before the arguments."""
        self._name = ""
        self._arguments = JsonBeginning()

    def push(self, text: str) -> WrittenCall | None:
        if self._arguments.over:
            return None
        if not self._name:
            self._held += text[: LONGEST_HEAD + 1]
            head = self._head_of(self._held[:LONGEST_HEAD])
            if head is None or head.name not in self._schemas:
                self._arguments.over = head is not None or len(self._held) > LONGEST_HEAD
                return None
            self._name = head.name
            text = (self._held + text[LONGEST_HEAD + 1 :])[head.place :]
        piece = self._arguments.push(text)
        return WrittenCall(self._name, piece) if piece else None


class MarkedAhead:
    """For calls whose arguments are in another notation, which is read up to each of its marks.

    `begun` returns the name and the beginning of the arguments of a call that is written up to a mark, or
    None if the mark is part of a value. Later results begin with the earlier ones.
    """

    def __init__(
        self, schemas: Schemas, mark: str, begun: Callable[[str, Schemas], WrittenCall | None]
    ) -> None:
        self._schemas, self._mark, self._begun = schemas, mark, begun
        self._held: list[str] = []
        self._window = ""
        """The last characters, which may be the beginning of a mark."""
        self._looks = 0
        self._arguments = JsonBeginning()
        self._read = 0
        """Characters of the arguments that were pushed."""

    def push(self, text: str) -> WrittenCall | None:
        if self._looks == MOST_LOOKS:
            return None
        window = self._window + text
        self._held.append(text)
        place = window.rfind(self._mark)
        if place < 0:
            self._window = window[-len(self._mark) + 1 :]
            return None
        after = window[place + len(self._mark) :]
        self._window = after[-len(self._mark) + 1 :]
        self._looks += 1
        held = "".join(self._held)
        self._held = [held]
        call = self._begun(held[: len(held) - len(after)], self._schemas)
        if call is None or call.name not in self._schemas:
            return None
        piece = self._arguments.push(call.arguments[self._read :])
        self._read = len(call.arguments)
        return WrittenCall(call.name, piece) if piece else None


class JsonBeginning:
    """Passes on the text of a JSON object, as far as it is one, without the brace that ends it.

    It reads each character a bounded number of times, and cuts no escape, number or word.
    """

    def __init__(self) -> None:
        self._rest = ""
        """Text that was not passed on."""
        self._within: list[str] = []
        """The closing brackets of the open objects and arrays."""
        self._quoted = False
        self._next = "{"
        """The expected text: "{", ":" or ",", a "name" or a "value"; a "first" one is optional."""
        self.over = False
        """The object has ended, or the text is not one: nothing more is passed on."""

    def push(self, text: str) -> str:
        """The text to pass on."""
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
        """The place after the next part of a string; `place` if it is incomplete or not a string."""
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
