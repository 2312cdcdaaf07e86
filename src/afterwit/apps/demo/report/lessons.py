"""What a run learned from which conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from afterwit.apps.demo.live import LiveSystem
from afterwit.apps.demo.people import Interaction
from afterwit.apps.demo.report.report import Lesson
from afterwit.core.message import Message


def lessons(system: LiveSystem, seen: Sequence[Interaction]) -> tuple[Lesson, ...]:
    """The turns that a version was trained on, in the order of their conversations, numbered from 1."""
    return tuple(
        lesson for number, one in enumerate(seen, start=1) for lesson in _lessons(system, number, one)
    )


def _lessons(system: LiveSystem, number: int, one: Interaction) -> Iterator[Lesson]:
    for turn in one.turns:
        record = system.store(lambda store, turn=turn: store.turn(turn))  # type: ignore[misc]
        if record.trained_in:
            hints = record.verdict.hints if record.verdict else ()
            yield Lesson(
                interaction=number,
                request=one.task.request,
                response=in_words(record.turn.message),
                reaction=one.reaction,
                hint=hints[0] if hints else None,
                version=record.trained_in[0],
            )


def in_words(message: Message) -> str:
    """A response as a line a call, then its text."""
    calls = [f"{call.name} {call.arguments}" for call in message.tool_calls]
    return "\n".join([*calls, message.content or ""]).strip()
