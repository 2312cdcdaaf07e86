"""What a run learned, from which conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from afterwit.apps.demo.live import LiveSystem
from afterwit.apps.demo.people import Interaction
from afterwit.apps.demo.world import World
from afterwit.core.message import Message
from afterwit.store import Record, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTurn:
    """A turn that went into a version; `hint` is what the judge made of what followed it."""

    turn: str
    response: str
    hint: str | None
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One conversation with at least one turn that trained."""

    interaction: int
    """Its number, from 1."""
    request: str
    reaction: str
    """What the person said after the last of the agent's turns."""
    mood: str
    turns: tuple[TrainedTurn, ...]
    rules: tuple[str, ...]
    """The rules that its hints speak of."""


def lessons_of(system: LiveSystem, world: World, seen: Sequence[Interaction]) -> tuple[Lesson, ...]:
    """The conversations that trained, in their order."""
    return tuple(_lessons(system, world, seen))


def _lessons(system: LiveSystem, world: World, seen: Sequence[Interaction]) -> Iterator[Lesson]:
    for number, one in enumerate(seen, start=1):
        turns = [_trained(record) for record in system.store(lambda store, one=one: _records(store, one))]  # type: ignore[misc]
        trained = tuple(turn for turn in turns if turn is not None)
        if trained:
            named = {rule for turn in trained if turn.hint for rule in world.rules_named_in(turn.hint)}
            yield Lesson(
                interaction=number,
                request=one.task.request,
                reaction=one.reaction,
                mood=one.mood,
                turns=trained,
                rules=tuple(rule for rule in world.rules if rule in named),
            )


def _records(store: Store, one: Interaction) -> list[Record]:
    return [store.turn(turn) for turn in one.turns]


def _trained(record: Record) -> TrainedTurn | None:
    if not record.trained_in:
        return None
    hints = record.verdict.hints if record.verdict else ()
    return TrainedTurn(
        turn=record.turn.id,
        response=in_words(record.turn.message),
        hint=hints[0] if hints else None,
        version=record.trained_in[0],
    )


def in_words(message: Message) -> str:
    """A response: one line for each call, then its text."""
    calls = [f"{call.name} {call.arguments}" for call in message.tool_calls]
    return "\n".join([*calls, message.content or ""]).strip()
