"""Reasoning, content and tool calls, read from a response's text while it streams.

A call is passed on when it is complete, and the beginning of its arguments before (`arguments`). A call that
cannot be read is content: no sampled text is lost. Time is proportional to the text, however it is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from afterwit.chat_format.arguments import NOT_AHEAD, Ahead
from afterwit.chat_format.calls import JsonEnd, Schemas, WrittenCall, schemas_of
from afterwit.chat_format.families import (
    CHANNEL,
    ENDS,
    MESSAGE,
    START,
    CallMarks,
    Convention,
    Thought,
    channel,
    holds_unread_call,
    recipient,
)
from afterwit.dialects.response import CallDelta, ParsedCall, ReasoningDelta, ResponseEvent, TextDelta
from afterwit.ids import MOST_CALLS
from afterwit.message import Message, ToolCall

SLICE = 4096
"""Characters read at a time: the text after a call is copied once for each call."""

Step = Callable[[str], str | None]
"""A state of a reader: takes text and returns the text that the next state must read."""

LONGEST_HEADER = 512
"""Characters. Longer text is content, not a header."""

HEADS = (START, CHANNEL, MESSAGE, "to=")
"""The beginnings of headers: the prompt ends with the beginning of one."""

BREAK = "\n\n"
"""Between two messages that are both content, or both reasoning."""

MOST_QUOTED_ENDS = 32
"""Quoted end marks that one call may hold; each costs a reading of the whole call."""


class ResponseParser:
    """Reads one response.

    `thought`: it begins inside this reasoning. The `tools` of the request type the arguments that a
    convention writes without quotes.
    """

    def __init__(
        self,
        convention: Convention,
        *,
        thought: Thought | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._built = MessageBuilder()
        self._reader: HarmonyReader | MarkedReader
        if convention.grammar == "harmony":
            self._reader = HarmonyReader(convention, self._built, schemas_of(tools))
        else:
            self._reader = MarkedReader(convention, self._built, schemas_of(tools), thought)

    def push(self, text: str) -> list[ResponseEvent]:
        """The events that this text completes."""
        for start in range(0, len(text), SLICE):
            self._reader.push(text[start : start + SLICE])
        return self._built.take_events()

    def finish(self) -> list[ResponseEvent]:
        """The events of the text that was held back until the end of the response."""
        self._reader.finish()
        return self._built.take_events()

    def message(self, call_id: Callable[[int], str]) -> Message:
        """The whole response; `call_id` names the call at an index."""
        return self._built.message(call_id)


class MarkedReader:
    """Reads a response with marks into a message. `thought`: it begins inside this reasoning."""

    def __init__(
        self, convention: Convention, built: MessageBuilder, schemas: Schemas, thought: Thought | None
    ) -> None:
        self._convention, self._built, self._schemas = convention, built, schemas
        self._begins = {call.begin: call for call in convention.calls}
        self._call_marks = (*self._begins, *convention.wrappers)
        self._thoughts = {thought.begin: thought for thought in convention.thoughts}
        self._trim = False
        """Reasoning came before: the answer begins after its leading white space."""
        self._held: list[str] = []
        """The text of the states START and WHOLE, until it is known what it is."""
        self._window = ""
        """At the start: the beginning of a possible mark."""
        self._before = ""
        """White space before the call that is being read."""
        self._ahead: Ahead = NOT_AHEAD
        """Reads the call while it is being written."""
        self._step: Step = self._start
        if thought is not None:
            self._reason(thought, "")

    def push(self, text: str) -> None:
        rest: str | None = text
        while rest:
            rest = self._step(rest)

    def finish(self) -> None:
        held = "".join(self._held)
        if self._step == self._in_reasoning:
            self._built.add_reasoning(self._passage.finish())
        elif self._step == self._in_answer:
            rest = self._passage.finish()
            self._built.add_content(rest if rest.strip() or not self._built.has_calls else "")
        elif self._step == self._start:
            self._built.add_content(held.lstrip() if self._trim else held)
        elif self._step == self._in_aside:
            self._end_aside(self._aside.held())
        elif self._step == self._in_call:
            held = self._call.held()
            if not (self._marks.is_whole(held) and self._read(held)):
                cut = holds_unread_call(self._marks.begin + held)
                self._built.add_content(("" if cut else self._before) + self._marks.begin + held)
        elif not self._read(held):
            self._built.add_content(held)

    def _start(self, text: str) -> str | None:
        """Hold the text back until it is known how the response begins."""
        self._held.append(text)
        begun = self._window + text if self._window else text.lstrip()
        openings = self._convention.openings
        for mark, thought in self._thoughts.items():
            if begun.startswith(mark):
                return self._reason(thought, begun[len(mark) :])
        if openings and begun.startswith(openings):
            held = begun if self._trim else "".join(self._held)
            self._enter(self._whole)
            self._ahead = self._convention.ahead(self._schemas)
            return held
        if any(mark.startswith(begun) for mark in (*self._thoughts, *openings)):
            self._window = begun
            return None
        return self._answer("".join(self._held), trim=self._trim)

    def _in_reasoning(self, text: str) -> str | None:
        cleared = self._passage.push(text)
        self._built.add_reasoning(cleared.text)
        if cleared.mark is None:
            return None
        if cleared.mark == self._thought.end:
            return self._reasoned(cleared.rest)
        self._aside = UpToMark((self._thought.end,), lambda body: False)
        self._aside.push(self._passage.dropped + cleared.mark)
        self._enter(self._in_aside)
        return cleared.rest

    def _in_answer(self, text: str) -> str | None:
        cleared = self._passage.push(text)
        self._built.add_content(cleared.text)
        if cleared.mark is None:
            return None
        if cleared.mark in self._convention.wrappers:
            return self._answer(cleared.rest, trim=True)
        self._before = self._passage.dropped
        self._marks = self._begins[cleared.mark]
        self._call = call_text(self._marks)
        self._ahead = self._convention.ahead(self._schemas)
        self._enter(self._in_call)
        return cleared.rest

    def _in_call(self, text: str) -> str | None:
        ended = self._call.push(text)
        if ended is None:
            self._built.begin_call(self._ahead.push(text))
            return None
        called = self._read(ended.body) or self._read_after_mention(ended.body)
        if not called:
            self._built.add_content(self._before + self._marks.begin + ended.body + ended.mark)
        return self._answer(ended.rest, trim=called)

    def _read_after_mention(self, text: str) -> bool:
        """Read the call at the end of a text that first mentions a mark; False if there is none."""
        prose, mark, call = text.rpartition(self._marks.begin)
        if not mark or not (calls := self._convention.read(call, self._schemas)):
            return False
        self._built.add_content((self._before + self._marks.begin + prose).rstrip())
        return self._built.add_calls(calls)

    def _whole(self, text: str) -> None:
        """The whole response may be calls: hold it back to its end."""
        self._held.append(text)
        self._built.begin_call(self._ahead.push(text))

    def _in_aside(self, text: str) -> str | None:
        """A call was begun within the reasoning. It is one only if it ends reasoning that never closes."""
        ended = self._aside.push(text)
        if ended is None:
            return None
        self._built.add_reasoning(ended.body.rstrip())
        return self._reasoned(ended.rest)

    def _end_aside(self, text: str) -> None:
        alone = MessageBuilder()
        reader = MarkedReader(replace(self._convention, thoughts=()), alone, self._schemas, None)
        reader.push(text.lstrip())
        reader.finish()
        if alone.has_content or not self._built.add_calls(alone.calls):
            self._built.add_reasoning(text)

    def _reason(self, thought: Thought, rest: str) -> str:
        self._trim, self._thought = True, thought
        self._passage = Passage((thought.end, *self._call_marks), trim=True)
        self._enter(self._in_reasoning)
        return rest

    def _reasoned(self, rest: str) -> str:
        """The reasoning has ended."""
        if not self._convention.openings:
            return self._answer(rest, trim=True)
        self._enter(self._start)
        return rest

    def _answer(self, rest: str, *, trim: bool) -> str:
        self._passage = Passage(self._call_marks, trim=trim)
        self._enter(self._in_answer)
        return rest

    def _enter(self, step: Step) -> None:
        self._step, self._held, self._window = step, [], ""

    def _read(self, text: str) -> bool:
        """Add the calls that a text is; False if it is anything else."""
        return self._built.add_calls(self._convention.read(text, self._schemas))


class HarmonyReader:
    """Reads a response of messages in channels into one message."""

    def __init__(self, convention: Convention, built: MessageBuilder, schemas: Schemas) -> None:
        self._convention, self._built, self._schemas = convention, built, schemas
        self._step: Step = self._in_header
        self._header = ""
        """The header so far, or that of the current call."""
        self._add = built.add_content
        self._break = ""
        """The text before the message's first text."""

    def push(self, text: str) -> None:
        rest: str | None = text
        while rest:
            rest = self._step(rest)

    def finish(self) -> None:
        if self._step == self._in_text:
            self._speak(self._passage.finish())
        elif self._step == self._in_call:
            self._end_call(self._call.held(), "")
        elif self._step == self._in_header and not any(mark in self._header for mark in (START, CHANNEL)):
            self._built.add_content(self._header)

    def _in_header(self, text: str) -> str | None:
        self._header += text
        header, found, rest = self._header.partition(MESSAGE)
        if found and len(header) <= LONGEST_HEADER and _may_be_header(header):
            return self._open(header, rest)
        if found or len(self._header) >= LONGEST_HEADER + len(MESSAGE) or not _may_be_header(self._header):
            self._step = self._plain
            return self._header
        return None

    def _open(self, header: str, rest: str) -> str:
        """A message begins."""
        if recipient(header) and self._convention.calls:
            self._header = header + MESSAGE
            self._call = UpToMark(ENDS, self._convention.calls[0].quotes_end)
            self._ahead = self._convention.ahead(self._schemas)
            self._ahead.push(self._header)
            self._step = self._in_call
            return rest
        thought = channel(header) == "analysis"
        self._add = self._built.add_reasoning if thought else self._built.add_content
        spoken = self._built.has_reasoning if thought else self._built.has_content
        self._break = BREAK if spoken else ""
        self._passage = Passage(ENDS, trim=spoken)
        self._step = self._in_text
        return rest

    def _in_text(self, text: str) -> str | None:
        cleared = self._passage.push(text)
        self._speak(cleared.text)
        return None if cleared.mark is None else self._next(cleared.mark, cleared.rest)

    def _in_call(self, text: str) -> str | None:
        ended = self._call.push(text)
        if ended is None:
            self._built.begin_call(self._ahead.push(text))
            return None
        self._end_call(ended.body, ended.mark)
        return self._next(ended.mark, ended.rest)

    def _plain(self, text: str) -> None:
        """The response is not in this form: the rest is content."""
        self._built.add_content(text)

    def _next(self, mark: str, rest: str) -> str:
        """A message has ended, and perhaps another one begun."""
        self._step = self._in_header
        self._header = START if mark == START else ""
        return rest

    def _end_call(self, body: str, mark: str) -> None:
        if not self._built.add_calls(self._convention.read(self._header + body, self._schemas)):
            self._built.add_content(self._header + body + ("" if mark == START else mark))

    def _speak(self, text: str) -> None:
        if text:
            self._add(self._break + text)
            self._break = ""


def _may_be_header(text: str) -> bool:
    begun = text.lstrip()
    return any(begun.startswith(head) or head.startswith(begun) for head in HEADS)


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
