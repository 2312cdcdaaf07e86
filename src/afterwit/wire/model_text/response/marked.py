"""Responses in which marks tell reasoning, content and calls apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum

from afterwit.wire.model_text.calls.ahead import NOT_AHEAD, Ahead
from afterwit.wire.model_text.calls.written import Schemas
from afterwit.wire.model_text.conventions import CallMarks, Convention, Thought
from afterwit.wire.model_text.response.call_text import UpToMark, call_text
from afterwit.wire.model_text.response.growing import Growing
from afterwit.wire.model_text.response.passage import Passage


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
