"""A call's text while it arrives: up to an end mark that no argument quotes, or up to the end of its JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from afterwit.wire.model_text.calls.json_end import JsonEnd
from afterwit.wire.model_text.conventions import CallMarks

MOST_QUOTED_ENDS = 32
"""Quoted end marks that one call may hold; each costs a look at the whole call."""


class Ended(NamedTuple):
    """A call's text, the mark that ended it, and what follows."""

    body: str
    mark: str
    rest: str


class CallText(Protocol):
    """A call that is held back until it ends."""

    def push(self, text: str) -> Ended | None:
        """The call with this text, if it ends in it."""
        ...

    def held(self) -> str:
        """Everything so far: the call has not ended."""
        ...


def call_text(marks: CallMarks) -> CallText:
    """For a call between these marks."""
    return UpToMark((marks.end,), marks.quotes_end) if marks.end else UpToJsonEnd()


class UpToMark:
    """Ends at the first of the marks that is not quoted."""

    def __init__(self, ends: Sequence[str], quotes_end: Callable[[str], bool]) -> None:
        self._ends = re.compile("|".join(map(re.escape, ends)))
        self._reach = max(map(len, ends)) - 1
        """The longest beginning of a mark."""
        self._quotes_end = quotes_end
        self._held: list[str] = []
        self._length = 0
        self._window = ""
        """The last characters, where a mark may have begun."""
        self._quoted = 0
        """Marks that are quoted."""
        self._behind = 0
        """Where the last of them begins, and one more."""

    def push(self, text: str) -> Ended | None:
        self._held.append(text)
        self._length += len(text)
        window = self._window + text
        begin = self._length - len(window)
        found = self._ends.search(window, max(0, self._behind - begin))
        while found:
            held = self.held()
            self._held = [held]
            body = held[: begin + found.start()]
            if self._quoted == MOST_QUOTED_ENDS or not self._quotes_end(body):
                return Ended(body, found[0], held[begin + found.end() :])
            self._quoted += 1
            self._behind = begin + found.start() + 1
            found = self._ends.search(window, found.start() + 1)
        self._window = window[-self._reach :]
        return None

    def held(self) -> str:
        return "".join(self._held)


class UpToJsonEnd:
    """Ends with the JSON value that it holds."""

    def __init__(self) -> None:
        self._end = JsonEnd()
        self._held: list[str] = []

    def push(self, text: str) -> Ended | None:
        stop = self._end.find(text)
        self._held.append(text[:stop])
        return None if stop is None else Ended(self.held(), "", text[stop:])

    def held(self) -> str:
        return "".join(self._held)
