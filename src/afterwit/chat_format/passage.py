"""The parts of a response's parser: text up to a mark, a call up to its end, and the message that grows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from afterwit.chat_format.calls import JsonEnd, WrittenCall
from afterwit.chat_format.convention import CallMarks
from afterwit.dialects.response import CallDelta, ParsedCall, ReasoningDelta, ResponseEvent, TextDelta
from afterwit.ids import MOST_CALLS
from afterwit.message import Message, ToolCall


class Cleared(NamedTuple):
    """Text to pass on, the mark that ended the passage (None until one comes), and the text after it."""

    text: str
    mark: str | None
    rest: str


class Passage:
    """Passes on text that cannot belong to a mark, nor to the white space before one, which is dropped.

    Its time is proportional to the text, however it is cut. Without marks, all text is passed on at once.
    """

    def __init__(self, marks: Sequence[str], *, trim: bool) -> None:
        self._marks = marks
        self._found = re.compile("|".join(map(re.escape, marks))) if marks else None
        self._firsts = frozenset(mark[0] for mark in marks)
        self._trim = trim
        """Drop white space until the first text."""
        self._space: list[str] = []
        """White space that was held back."""
        self._tail = ""
        """The beginning of a possible mark."""

    def push(self, text: str) -> Cleared:
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
    """The start of the longest end of the text that may become the mark; the text's length without one.

    A mark's first character is in it once, so only the last one in the text can begin it.
    """
    begun = text.rfind(mark[0], -len(mark))
    return begun if begun >= 0 and mark.startswith(text[begun:]) else len(text)


MOST_QUOTED_ENDS = 32
"""Quoted end marks that one call may hold; each costs a reading of the whole call."""


class Ended(NamedTuple):
    """A call's text, the mark that ended it, and the text after it."""

    body: str
    mark: str
    rest: str


def call_text(marks: CallMarks) -> UpToMark | UpToJsonEnd:
    """Holds back a call between these marks."""
    return UpToMark((marks.end,), marks.quotes_end) if marks.end else UpToJsonEnd()


class UpToMark:
    """Holds back text up to the first of the marks that is not quoted."""

    def __init__(self, ends: Sequence[str], quotes_end: Callable[[str], bool]) -> None:
        self._ends = re.compile("|".join(map(re.escape, ends)))
        self._reach = max(map(len, ends)) - 1
        """The longest beginning of a mark."""
        self._quotes_end = quotes_end
        self._held: list[str] = []
        self._length = 0
        self._window = ""
        """The last characters, which may be the beginning of a mark."""
        self._quoted = 0
        """Quoted marks so far."""
        self._after = 0
        """One place after the beginning of the last quoted mark."""

    def push(self, text: str) -> Ended | None:
        """The call, if it ends in this text."""
        self._held.append(text)
        self._length += len(text)
        window = self._window + text
        begin = self._length - len(window)
        found = self._ends.search(window, max(0, self._after - begin))
        while found:
            held = self.held()
            self._held = [held]
            body = held[: begin + found.start()]
            if self._quoted == MOST_QUOTED_ENDS or not self._quotes_end(body):
                return Ended(body, found[0], held[begin + found.end() :])
            self._quoted += 1
            self._after = begin + found.start() + 1
            found = self._ends.search(window, found.start() + 1)
        self._window = window[-self._reach :]
        return None

    def held(self) -> str:
        return "".join(self._held)


class UpToJsonEnd:
    """Holds back text up to the end of its JSON value."""

    def __init__(self) -> None:
        self._end = JsonEnd()
        self._held: list[str] = []

    def push(self, text: str) -> Ended | None:
        """The call, if it ends in this text."""
        stop = self._end.find(text)
        self._held.append(text[:stop])
        return None if stop is None else Ended(self.held(), "", text[stop:])

    def held(self) -> str:
        return "".join(self._held)


class MessageBuilder:
    """The content, reasoning and calls of a response so far, and the events that were not taken yet."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ParsedCall] = []
        self._begun: CallDelta | None = None
        """The call that is being written, as far as it was passed on."""
        self._indices = 0
        """Indices of calls so far, with those that were begun and not completed."""
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

    @property
    def calls(self) -> list[WrittenCall]:
        return [WrittenCall(call.name, call.arguments) for call in self._calls]

    def add_content(self, text: str) -> None:
        if text:
            self._content.append(text)
            self._events.append(TextDelta(text=text))

    def add_reasoning(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self._events.append(ReasoningDelta(text=text))

    def begin_call(self, piece: WrittenCall | None) -> None:
        """Add arguments to the call that is being written."""
        if piece is None or (self._begun is None and self._indices == MOST_CALLS):
            return
        if self._begun is None:
            self._begun = CallDelta(index=self._indices, name=piece.name, arguments="")
            self._indices += 1
        self._begun.arguments += piece.arguments
        self._events.append(replace(self._begun, arguments=piece.arguments))

    def add_calls(self, calls: Sequence[WrittenCall]) -> bool:
        """Add complete calls; False, and nothing is added, if there are none or too few ids are left.

        The first one completes the begun call, if it begins with the arguments that were passed on.
        """
        begun, self._begun = self._begun, None
        completes = (
            begun is not None
            and bool(calls)
            and calls[0].name == begun.name
            and calls[0].arguments.startswith(begun.arguments)
        )
        if not calls or self._indices + len(calls) - completes > MOST_CALLS:
            return False
        first = begun.index if begun is not None and completes else self._indices
        for index, (name, arguments) in enumerate(calls, first):
            call = ParsedCall(index=index, name=name, arguments=arguments)
            self._calls.append(call)
            self._events.append(call)
        self._indices = first + len(calls)
        return True

    def take_events(self) -> list[ResponseEvent]:
        """The events since the last call of this method."""
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
