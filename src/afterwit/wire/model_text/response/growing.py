"""What a response has become so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from afterwit.core.ids import MOST_CALLS
from afterwit.core.message import Message, ToolCall
from afterwit.wire.model_text.calls.written import WrittenCall
from afterwit.wire.response import ParsedCall, ReasoningDelta, ResponseEvent, TextDelta


class Growing:
    """Content, reasoning and calls, and the events that were not handed on yet."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ParsedCall] = []
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

    def call(self, calls: Sequence[WrittenCall]) -> bool:
        """More calls; False, and nothing is added, if there are none or no id is left for them."""
        if not calls or len(self._calls) + len(calls) > MOST_CALLS:
            return False
        for name, arguments in calls:
            call = ParsedCall(index=len(self._calls), name=name, arguments=arguments)
            self._calls.append(call)
            self._events.append(call)
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
