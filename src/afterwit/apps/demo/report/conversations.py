"""The conversations of a run as they were held, and what was made of each of the agent's turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from afterwit.apps.demo.live import LiveSystem
from afterwit.apps.demo.people import Interaction, calls
from afterwit.apps.demo.world import Message, World
from afterwit.store import Record, Store

Speaker = Literal["person", "agent", "tool"]
_SPEAKERS: dict[str, Speaker] = {"user": "person", "assistant": "agent", "tool": "tool"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What was made of a turn."""

    turn: str
    reward: int | None
    """The judge's tally: -1, 0 or 1. None: nothing was judged."""
    hint: str | None
    """What the judge made of what followed."""
    version: int | None
    """The first version that it trained. None: it trained none."""
    ended: str | None
    """Why it did not train, in the store's word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One message of a conversation; if it is a turn of the agent that was answered, what was made of it."""

    speaker: Speaker
    text: str
    judged: Judged | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One task from the request to the last word."""

    number: int
    """From 1."""
    request: str
    reaction: str
    """What the person said after the last of the agent's turns."""
    mood: str
    steps: tuple[Step, ...]
    rules: tuple[str, ...]
    """The rules that the hints of its trained turns speak of."""

    @property
    def trained(self) -> tuple[Judged, ...]:
        """Its turns that trained a version."""
        return tuple(step.judged for step in self.steps if step.judged and step.judged.version is not None)


def conversations_of(system: LiveSystem, world: World, seen: Sequence[Interaction]) -> list[Conversation]:
    """Every conversation, in its order."""
    records = system.store(lambda store: [_records(store, one) for one in seen])
    pairs = zip(seen, records, strict=True)
    return [_conversation(number, one, world, its) for number, (one, its) in enumerate(pairs, start=1)]


def _records(store: Store, one: Interaction) -> list[Record]:
    return [store.turn(turn) for turn in one.turns]


def _conversation(number: int, one: Interaction, world: World, records: Sequence[Record]) -> Conversation:
    steps = tuple(_steps(one.messages, [_judged(record) for record in records]))
    made = [step.judged for step in steps if step.judged]
    hints = [each.hint for each in made if each.hint and each.version is not None]
    named = {rule for hint in hints for rule in world.rules_named_in(hint)}
    return Conversation(
        number=number,
        request=one.task.request,
        reaction=one.reaction,
        mood=one.mood,
        steps=steps,
        rules=tuple(rule for rule in world.rules if rule in named),
    )


def _steps(messages: Sequence[Message], judged: Sequence[Judged]) -> Iterator[Step]:
    """The agent's messages are its turns in their order; the last one, to which nobody replied, is none."""
    turns = iter(judged)
    for message in messages:
        if message["role"] in _SPEAKERS:
            speaker = _SPEAKERS[message["role"]]
            made = next(turns, None) if speaker == "agent" else None
            yield Step(speaker=speaker, text=in_words(message), judged=made)


def _judged(record: Record) -> Judged:
    verdict, trained = record.verdict, record.trained_in
    return Judged(
        turn=record.turn.id,
        reward=None if verdict is None else verdict.reward,
        hint=verdict.hints[0] if verdict and verdict.hints else None,
        version=trained[0] if trained else None,
        ended=None if trained or record.reason is None else record.reason.value,
    )


def in_words(message: Message) -> str:
    """A message: one line for each call, then its text."""
    made = [f"{call.name} {call.arguments}" for call in calls(message)]
    return "\n".join([*made, message.get("content") or ""]).strip()
