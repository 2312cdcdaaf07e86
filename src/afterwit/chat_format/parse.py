"""Reasoning, content and tool calls, read from a response's text while it streams.

A call is handed on when it is complete, and the beginning of its arguments before (`calls.ahead`). One that
cannot be read is content: nothing that was sampled is lost.
The time is proportional to the text, however it is cut into pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

from afterwit.chat_format.arguments import NOT_AHEAD, Ahead
from afterwit.chat_format.calls import Schemas, schemas_of
from afterwit.chat_format.convention import CallMarks, Convention, Thought
from afterwit.chat_format.families.harmony import CHANNEL, ENDS, MESSAGE, START, channel, recipient
from afterwit.chat_format.passage import CallText, Growing, Passage, UpToMark, call_text
from afterwit.dialects.response import ResponseEvent
from afterwit.message import Message

SLICE = 4096
"""Characters read at a time: what follows a call is copied once for each call."""


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
        self._growing = Growing()
        self._reader: HarmonyReader | MarkedReader
        if convention.grammar == "harmony":
            self._reader = HarmonyReader(convention, self._growing, schemas_of(tools))
        else:
            self._reader = MarkedReader(convention, self._growing, schemas_of(tools), thought)

    def push(self, text: str) -> list[ResponseEvent]:
        """The events that this text completes."""
        for start in range(0, len(text), SLICE):
            self._reader.push(text[start : start + SLICE])
        return self._growing.taken()

    def finish(self) -> list[ResponseEvent]:
        """What was held back when the response ended."""
        self._reader.finish()
        return self._growing.taken()

    def message(self, call_id: Callable[[int], str]) -> Message:
        """The whole response; `call_id` names the call at an index."""
        return self._growing.message(call_id)


class _State(IntEnum):
    START = 0
    REASONING = 1
    ANSWER = 2
    CALL = 3
    WHOLE = 4
    """The whole response may be calls: it is held back to its end."""
    ASIDE = 5
    """A call was begun within the reasoning. It is one only if it ends a reasoning that never closes."""


class MarkedReader:
    """Reads one response into what it grows to. `thought`: it begins inside this reasoning."""

    def __init__(
        self, convention: Convention, growing: Growing, schemas: Schemas, thought: Thought | None
    ) -> None:
        self._convention = convention
        self._growing = growing
        self._schemas = schemas
        self._begins = {call.begin: call for call in convention.calls}
        self._call_marks = (*self._begins, *convention.wrappers)
        self._thoughts = {thought.begin: thought for thought in convention.thoughts}
        self._trim = False
        """Reasoning came before: white space at the start of the answer is not part of it."""
        self._held: list[str] = []
        """Text that is held back in the states START, WHOLE and ASIDE."""
        self._window = ""
        """In START: the beginning of what may become a mark."""
        self._ahead: Ahead = NOT_AHEAD
        """Reads the call while it is being written."""
        self._state = _State.START
        if thought is not None:
            self._reason(thought, "")

    def push(self, text: str) -> None:
        """Reads more text."""
        rest: str | None = text
        while rest:
            rest = _STEPS[self._state](self, rest)

    def finish(self) -> None:
        """Reads what was held back: the response has ended."""
        held = "".join(self._held)
        if self._state is _State.REASONING:
            self._growing.think(self._passage.finish())
        elif self._state is _State.ANSWER:
            rest = self._passage.finish()
            self._growing.say(rest if rest.strip() or not self._growing.has_calls else "")
        elif self._state is _State.START:
            self._growing.say(held.lstrip() if self._trim else held)
        elif self._state is _State.ASIDE:
            self._end_aside(self._aside.held())
        elif self._state is _State.CALL:
            held = self._call.held()
            if not (self._marks.is_whole(held) and self._read(held)):
                self._growing.say(self._marks.begin + held)
        elif not self._read(held):
            self._growing.say(held)

    def _start(self, text: str) -> str | None:
        """Hold back until it is known how the response begins."""
        self._held.append(text)
        begun = self._window + text if self._window else text.lstrip()
        openings = self._convention.openings
        for mark, thought in self._thoughts.items():
            if begun.startswith(mark):
                return self._reason(thought, begun[len(mark) :])
        if openings and begun.startswith(openings):
            held = begun if self._trim else "".join(self._held)
            self._enter(_State.WHOLE)
            self._ahead = self._convention.ahead(self._schemas)
            return held
        if any(mark.startswith(begun) for mark in (*self._thoughts, *openings)):
            self._window = begun
            return None
        return self._answer("".join(self._held), trim=self._trim)

    def _in_reasoning(self, text: str) -> str | None:
        cleared = self._passage.push(text)
        self._growing.think(cleared.text)
        if cleared.mark is None:
            return None
        if cleared.mark != self._thought.end:
            self._aside = UpToMark((self._thought.end,), lambda body: False)
            self._aside.push(self._passage.dropped + cleared.mark)
            self._enter(_State.ASIDE)
            return cleared.rest
        return self._reasoned(cleared.rest)

    def _in_answer(self, text: str) -> str | None:
        cleared = self._passage.push(text)
        self._growing.say(cleared.text)
        if cleared.mark is None:
            return None
        if cleared.mark in self._convention.wrappers:
            return self._answer(cleared.rest, trim=True)
        self._marks: CallMarks = self._begins[cleared.mark]
        self._call = call_text(self._marks)
        self._ahead = self._convention.ahead(self._schemas)
        self._enter(_State.CALL)
        return cleared.rest

    def _in_call(self, text: str) -> str | None:
        ended = self._call.push(text)
        if ended is None:
            self._growing.begin(self._ahead.push(text))
            return None
        called = self._read(ended.body)
        if not called:
            self._growing.say(self._marks.begin + ended.body + ended.mark)
        return self._answer(ended.rest, trim=called)

    def _whole(self, text: str) -> None:
        self._held.append(text)
        self._growing.begin(self._ahead.push(text))

    def _in_aside(self, text: str) -> str | None:
        ended = self._aside.push(text)
        if ended is None:
            return None
        self._growing.think(ended.body.rstrip())
        return self._reasoned(ended.rest)

    def _end_aside(self, text: str) -> None:
        """The reasoning never ended. Its end is calls if it is nothing else."""
        alone = Growing()
        reader = MarkedReader(replace(self._convention, thoughts=()), alone, self._schemas, None)
        reader.push(text.lstrip())
        reader.finish()
        if alone.has_content or not self._growing.call(alone.written()):
            self._growing.think(text)

    def _reason(self, thought: Thought, rest: str) -> str:
        self._trim, self._thought = True, thought
        self._passage = Passage((thought.end, *self._call_marks), trim=True)
        self._enter(_State.REASONING)
        return rest

    def _reasoned(self, rest: str) -> str:
        """The reasoning has ended."""
        if not self._convention.openings:
            return self._answer(rest, trim=True)
        self._enter(_State.START)
        return rest

    def _answer(self, rest: str, *, trim: bool) -> str:
        self._passage = Passage(self._call_marks, trim=trim)
        self._enter(_State.ANSWER)
        return rest

    def _enter(self, state: _State, held: str = "") -> None:
        self._state, self._held, self._window = state, [held], ""

    def _read(self, text: str) -> bool:
        """Hand on the calls that a text is; False if it is anything else."""
        return self._growing.call(self._convention.read(text, self._schemas))


_STEPS: tuple[Callable[[MarkedReader, str], str | None], ...] = (
    MarkedReader._start,
    MarkedReader._in_reasoning,
    MarkedReader._in_answer,
    MarkedReader._in_call,
    MarkedReader._whole,
    MarkedReader._in_aside,
)
"""In the order of `_State`. Each takes text and gives back what the next state must read."""

LONGEST_HEADER = 512
"""Characters. What is longer is no header, but content."""

HEADS = (START, CHANNEL, MESSAGE, "to=")
"""What a header may begin with: the prompt ends with the beginning of one."""

BREAK = "\n\n"
"""Between two messages that are both content, or both reasoning."""


class _HarmonyState(IntEnum):
    HEADER = 0
    TEXT = 1
    CALL = 2
    PLAIN = 3
    """Not in this form: the rest is content."""


class HarmonyReader:
    """Reads one response into what it grows to."""

    def __init__(self, convention: Convention, growing: Growing, schemas: Schemas) -> None:
        self._convention = convention
        self._growing = growing
        self._schemas = schemas
        self._state = _HarmonyState.HEADER
        self._header = ""
        """What there is of the header, or the one of the current call."""
        self._say = growing.say
        self._break = ""
        """What comes before the message's first text."""

    def push(self, text: str) -> None:
        """Reads more text."""
        rest: str | None = text
        while rest:
            rest = _HARMONY_STEPS[self._state](self, rest)

    def finish(self) -> None:
        """Reads what was held back: the response has ended."""
        if self._state is _HarmonyState.TEXT:
            self._speak(self._passage.finish())
        elif self._state is _HarmonyState.CALL:
            self._end_call(self._call.held(), "")
        elif self._state is _HarmonyState.HEADER and not any(
            mark in self._header for mark in (START, CHANNEL)
        ):
            self._growing.say(self._header)

    def _in_header(self, text: str) -> str | None:
        self._header += text
        header, found, rest = self._header.partition(MESSAGE)
        if found and len(header) <= LONGEST_HEADER and _may_be_header(header):
            return self._open(header, rest)
        if found or len(self._header) >= LONGEST_HEADER + len(MESSAGE) or not _may_be_header(self._header):
            self._state = _HarmonyState.PLAIN
            return self._header
        return None

    def _open(self, header: str, rest: str) -> str:
        """A message begins."""
        if recipient(header) and self._convention.calls:
            self._header = header + MESSAGE
            self._call: CallText = UpToMark(ENDS, self._convention.calls[0].quotes_end)
            self._ahead = self._convention.ahead(self._schemas)
            self._ahead.push(self._header)
            self._state = _HarmonyState.CALL
            return rest
        thought = channel(header) == "analysis"
        self._say = self._growing.think if thought else self._growing.say
        spoken = self._growing.has_reasoning if thought else self._growing.has_content
        self._break = BREAK if spoken else ""
        self._passage = Passage(ENDS, trim=bool(spoken))
        self._state = _HarmonyState.TEXT
        return rest

    def _in_text(self, text: str) -> str | None:
        cleared = self._passage.push(text)
        self._speak(cleared.text)
        return None if cleared.mark is None else self._next(cleared.mark, cleared.rest)

    def _in_call(self, text: str) -> str | None:
        ended = self._call.push(text)
        if ended is None:
            self._growing.begin(self._ahead.push(text))
            return None
        self._end_call(ended.body, ended.mark)
        return self._next(ended.mark, ended.rest)

    def _plain(self, text: str) -> None:
        self._growing.say(text)

    def _next(self, mark: str, rest: str) -> str:
        """A message has ended, and perhaps another one begun."""
        self._state = _HarmonyState.HEADER
        self._header = START if mark == START else ""
        return rest

    def _end_call(self, body: str, mark: str) -> None:
        if not self._growing.call(self._convention.read(self._header + body, self._schemas)):
            self._growing.say(self._header + body + ("" if mark == START else mark))

    def _speak(self, text: str) -> None:
        if text:
            self._say(self._break + text)
            self._break = ""


def _may_be_header(text: str) -> bool:
    """Whether a text can be the beginning of a header."""
    begun = text.lstrip()
    return any(begun.startswith(head) or head.startswith(begun) for head in HEADS)


_HARMONY_STEPS: tuple[Callable[[HarmonyReader, str], str | None], ...] = (
    HarmonyReader._in_header,
    HarmonyReader._in_text,
    HarmonyReader._in_call,
    HarmonyReader._plain,
)
"""In the order of `_HarmonyState`. Each takes text and gives back what the next state must read."""
