"""What a response has become so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from afterwit.core.ids import MOST_CALLS
from afterwit.core.message import Message, ToolCall
from afterwit.wire.model_text.calls.written import WrittenCall
from afterwit.wire.response import CallDelta, ParsedCall, ReasoningDelta, ResponseEvent, TextDelta


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
