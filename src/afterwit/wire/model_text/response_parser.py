"""Reasoning, content and tool calls, read from a response's text while it streams.

A call is handed on when it is complete. One that cannot be read is content: nothing that was sampled is lost.
The time is proportional to the text, however it is cut into pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from afterwit.core.ids import MOST_CALLS
from afterwit.core.message import Message, ToolCall
from afterwit.wire.model_text.conventions import Convention
from afterwit.wire.model_text.passage import Passage
from afterwit.wire.model_text.reasoning import END_THINK, THINK
from afterwit.wire.response import ParsedCall, ReasoningDelta, ResponseEvent, TextDelta

MOST_QUOTED_ENDS = 32
"""Quoted end marks that one call may hold; each costs a look at the whole call."""
SLICE = 4096
"""Characters read at a time: what follows a call is copied once for each call."""


class _State(IntEnum):
    START = 0
    REASONING = 1
    ANSWER = 2
    CALL = 3
    WHOLE = 4
    """The whole response may be calls: it is held back to its end."""


class ResponseParser:
    """Reads one response. `reasoning`: it begins inside the reasoning (see `opens_reasoning`)."""

    def __init__(self, convention: Convention, *, reasoning: bool = False) -> None:
        self._convention = convention
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ParsedCall] = []
        self._events: list[ResponseEvent] = []
        """Not handed on yet."""
        self._trim = False
        """Reasoning came before: white space at the start of the answer is not part of it."""
        self._held: list[str] = []
        """Text that is held back in the states START, CALL and WHOLE."""
        self._window = ""
        """The last characters of `_held`, where an end mark or an opening may have begun."""
        self._quoted = 0
        """End marks of the current call that are quoted in its arguments."""
        self._state = _State.START
        if reasoning:
            self._reason("")

    def push(self, text: str) -> list[ResponseEvent]:
        """The events that this text completes."""
        for start in range(0, len(text), SLICE):
            rest: str | None = text[start : start + SLICE]
            while rest:
                rest = _STEPS[self._state](self, rest)
        return self._taken()

    def finish(self) -> list[ResponseEvent]:
        """What was held back when the response ended."""
        held = "".join(self._held)
        if self._state in (_State.REASONING, _State.ANSWER):
            rest = self._passage.finish()
            self._say(rest if rest.strip() or not self._calls else "")
        elif self._state is _State.START:
            self._say_text(held.lstrip() if self._trim else held)
        elif not self._call(held):
            self._say_text((self._convention.begin if self._state is _State.CALL else "") + held)
        return self._taken()

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

    def _start(self, text: str) -> str | None:
        """Hold back until it is known how the response begins."""
        self._held.append(text)
        begun = self._window + text if self._window else text.lstrip()
        openings = self._convention.openings
        if begun.startswith(THINK):
            return self._reason(begun[len(THINK) :])
        if openings and begun.startswith(openings):
            self._enter(_State.WHOLE, begun if self._trim else "".join(self._held))
            return None
        if any(mark.startswith(begun) for mark in (THINK, *openings)):
            self._window = begun
            return None
        return self._answer("".join(self._held), trim=self._trim)

    def _in_passage(self, text: str) -> str | None:
        """Reasoning or content, up to the mark that ends it."""
        cleared, rest = self._passage.push(text)
        self._say(cleared)
        if rest is None:
            return None
        if self._state is _State.ANSWER:
            self._enter(_State.CALL)
            return rest
        if not self._convention.openings:
            return self._answer(rest, trim=True)
        self._enter(_State.START)
        return rest

    def _in_call(self, text: str) -> str | None:
        """Hold back up to the end mark that no argument quotes."""
        end = self._convention.end
        self._held.append(text)
        window = self._window + text
        place = window.find(end)
        while place >= 0:
            held = "".join(self._held)
            self._held = [held]
            stop = len(held) - len(window) + place
            body = held[:stop]
            if self._quoted == MOST_QUOTED_ENDS or not self._convention.quotes_end(body):
                return self._close(body, held[stop + len(end) :])
            self._quoted += 1
            place = window.find(end, place + 1)
        self._window = window[1 - len(end) :]
        return None

    def _whole(self, text: str) -> None:
        self._held.append(text)

    def _close(self, body: str, rest: str) -> str:
        """A call ended: hand it on, or its text if it cannot be read."""
        called = self._call(body)
        if not called:
            self._say_text(self._convention.begin + body + self._convention.end)
        return self._answer(rest, trim=called)

    def _reason(self, rest: str) -> str:
        self._trim = True
        self._passage = Passage(END_THINK, trim=True)
        self._enter(_State.REASONING)
        return rest

    def _answer(self, rest: str, *, trim: bool) -> str:
        self._passage = Passage(self._convention.begin, trim=trim)
        self._enter(_State.ANSWER)
        return rest

    def _enter(self, state: _State, held: str = "") -> None:
        self._state, self._held, self._window, self._quoted = state, [held], "", 0

    def _call(self, text: str) -> bool:
        """Hand on the calls that a text is; False if it is anything else, or if no id is left for them."""
        calls = self._convention.read(text)
        if len(self._calls) + len(calls) > MOST_CALLS:
            return False
        for name, arguments in calls:
            call = ParsedCall(index=len(self._calls), name=name, arguments=arguments)
            self._calls.append(call)
            self._events.append(call)
        return bool(calls)

    def _say(self, text: str) -> None:
        if self._state is _State.REASONING:
            self._say_reasoning(text)
        else:
            self._say_text(text)

    def _say_text(self, text: str) -> None:
        if text:
            self._content.append(text)
            self._events.append(TextDelta(text=text))

    def _say_reasoning(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self._events.append(ReasoningDelta(text=text))

    def _taken(self) -> list[ResponseEvent]:
        events, self._events = self._events, []
        return events


_STEPS: tuple[Callable[[ResponseParser, str], str | None], ...] = (
    ResponseParser._start,
    ResponseParser._in_passage,
    ResponseParser._in_passage,
    ResponseParser._in_call,
    ResponseParser._whole,
)
"""In the order of `_State`. Each takes text and gives back what the next state must read."""
