"""The arguments of a call while it is being written: what can be handed on before its end is known.

What is handed on is the beginning of the arguments that the whole call is read to have, if it can be read.
Their last brace is kept back until then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from afterwit.chat_format.calls import Schemas, WrittenCall

LONGEST_HEAD = 1024
"""Characters before the arguments. A longer head is read with the whole call."""

MOST_LOOKS = 32
"""Marks within a call at which its parameters are read; each costs a look at all of it."""


class Ahead(Protocol):
    """Reads one call that is still being written."""

    def push(self, text: str) -> WrittenCall | None:
        """The next piece of the arguments, and the call's name. None: nothing new can be handed on."""
        ...


class _NotAhead:
    """Keeps back everything: the arguments are known with the whole call."""

    def push(self, text: str) -> WrittenCall | None:
        return None


NOT_AHEAD = _NotAhead()


class Head(NamedTuple):
    """The name of a call, and where the JSON object of its arguments begins."""

    name: str
    place: int


class JsonAhead:
    """Of a call whose arguments are the text of a JSON object, as it was written.

    `head_of` finds them in the beginning of the call; None if they have not begun.
    """

    def __init__(self, schemas: Schemas, head_of: Callable[[str], Head | None]) -> None:
        self._schemas, self._head_of = schemas, head_of
        self._held = ""
        """What came before the arguments."""
        self._name = ""
        self._arguments = JsonBeginning()
        self._over = False

    def push(self, text: str) -> WrittenCall | None:
        if self._over:
            return None
        if not self._name:
            self._held += text[: LONGEST_HEAD + 1]
            head = self._head_of(self._held[:LONGEST_HEAD])
            if head is None:
                self._over = len(self._held) > LONGEST_HEAD
                return None
            self._name, self._over = head.name, head.name not in self._schemas
            text = (self._held + text[LONGEST_HEAD + 1 :])[head.place :]
        piece = "" if self._over else self._arguments.push(text)
        self._over = self._over or self._arguments.over
        return WrittenCall(self._name, piece) if piece else None


class MarkedAhead:
    """Of a call whose arguments are written in another form, and read when a mark comes in it.

    `begun` gives the call's name and the beginning of its arguments, from the beginning of a call that ends
    with the mark; None if the mark does not tell. What it gives later begins with what it gave before.
    """

    def __init__(
        self, schemas: Schemas, mark: str, begun: Callable[[str, Schemas], WrittenCall | None]
    ) -> None:
        self._schemas, self._mark, self._begun = schemas, mark, begun
        self._held: list[str] = []
        self._window = ""
        """The last characters, where a mark may have begun."""
        self._looks = 0
        self._arguments = JsonBeginning()
        self._read = 0
        """Characters of the arguments that were read."""

    def push(self, text: str) -> WrittenCall | None:
        if self._looks == MOST_LOOKS:
            return None
        window = self._window + text
        self._held.append(text)
        place = window.rfind(self._mark)
        if place < 0:
            self._window = window[-len(self._mark) + 1 :]
            return None
        behind = window[place + len(self._mark) :]
        self._window = behind[-len(self._mark) + 1 :]
        self._looks += 1
        held = "".join(self._held)
        self._held = [held]
        call = self._begun(held[: len(held) - len(behind)], self._schemas)
        if call is None or call.name not in self._schemas:
            return None
        piece = self._arguments.push(call.arguments[self._read :])
        self._read = len(call.arguments)
        return WrittenCall(call.name, piece) if piece else None


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
