"""A passage of text that streams until a mark ends it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from afterwit.chat_format.calls import JsonEnd, WrittenCall
from afterwit.chat_format.convention import CallMarks
from afterwit.dialects.response import CallDelta, ParsedCall, ReasoningDelta, ResponseEvent, TextDelta
from afterwit.ids import MOST_CALLS
from afterwit.message import Message, ToolCall


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


class Growing:
    """Content, reasoning and calls, and the events that were not handed on yet."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ParsedCall] = []
        self._begun: CallDelta | None = None
        """The call that is still being written, as far as it was handed on."""
        self._indices = 0
        """Of the calls so far, those among them that were begun and came to nothing."""
        self._events: list[ResponseEvent] = []

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    @property
    def has_content(self) -> bool:
        return bool(self._content)

    @property
    def has_reasoning(self) -> bool:
        return bool(self._reasoning)

    def say(self, text: str) -> None:
        """More content."""
        if text:
            self._content.append(text)
            self._events.append(TextDelta(text=text))

    def think(self, text: str) -> None:
        """More reasoning."""
        if text:
            self._reasoning.append(text)
            self._events.append(ReasoningDelta(text=text))

    def begin(self, piece: WrittenCall | None) -> None:
        """More of the arguments of a call that is still being written."""
        if piece is None or (self._begun is None and self._indices == MOST_CALLS):
            return
        if self._begun is None:
            self._begun = CallDelta(index=self._indices, name=piece.name, arguments="")
            self._indices += 1
        self._begun.arguments += piece.arguments
        self._events.append(replace(self._begun, arguments=piece.arguments))

    def call(self, calls: Sequence[WrittenCall]) -> bool:
        """More calls; False, and nothing is added, if there are none or no id is left for them.

        The first of them is the one that was begun, if what was handed on of that is its beginning.
        """
        begun, self._begun = self._begun, None
        goes_on = begun is not None and calls and _goes_on(begun, calls[0])
        if not calls or self._indices + len(calls) - bool(goes_on) > MOST_CALLS:
            return False
        first = begun.index if begun is not None and goes_on else self._indices
        for index, (name, arguments) in enumerate(calls, first):
            call = ParsedCall(index=index, name=name, arguments=arguments)
            self._calls.append(call)
            self._events.append(call)
        self._indices = first + len(calls)
        return True

    def taken(self) -> list[ResponseEvent]:
        """The events since the last call of this."""
        events, self._events = self._events, []
        return events

    def message(self, call_id: Callable[[int], str]) -> Message:
        """The whole response; `call_id` names the call at an index."""
        calls = tuple(
            ToolCall(id=call_id(call.index), name=call.name, arguments=call.arguments) for call in self._calls
        )
        content = "".join(self._content)
        return Message(
            role="assistant",
            content=content if content or not calls else None,
            reasoning="".join(self._reasoning) or None,
            tool_calls=calls,
        )

    def written(self) -> list[WrittenCall]:
        """The calls so far."""
        return [WrittenCall(call.name, call.arguments) for call in self._calls]


def _goes_on(begun: CallDelta, call: WrittenCall) -> bool:
    return call.name == begun.name and call.arguments.startswith(begun.arguments)


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
