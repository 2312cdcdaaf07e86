"""The arguments of a call while it is being written: what can be handed on before its end is known.

What is handed on is the beginning of the arguments that the whole call is read to have, if it can be read.
Their last brace is kept back until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from afterwit.wire.model_text.calls.json_beginning import JsonBeginning
from afterwit.wire.model_text.calls.written import Schemas, WrittenCall

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
