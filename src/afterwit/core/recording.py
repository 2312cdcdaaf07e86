"""A conversation that was recorded elsewhere, and its turns. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from afterwit.core.ids import digest_id
from afterwit.core.message import Conversation, Message, observed
from afterwit.core.turn import Finish, ImportedTurn, Kind

SCOPE = "imported"
"""The scope of imported turns: no key has it, so no request goes on from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The messages of a conversation, and which of them are responses to import."""

    messages: tuple[Message, ...]
    responses: tuple[int, ...]
    """Indices of messages, in order. Each follows at least one message and is the assistant's."""
    tools: tuple[Mapping[str, Any], ...] = ()
    model: str = "unknown"

    def __post_init__(self) -> None:
        if not self.responses:
            raise ValueError("no message of the assistant follows another message")
        for at in self.responses:
            if not 0 < at < len(self.messages):
                raise ValueError(f"a response at index {at} of {len(self.messages)} messages")
            if self.messages[at].role != "assistant":
                raise ValueError(f"the response at index {at} is said by {self.messages[at].role}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One turn of a recording."""

    turn: ImportedTurn
    next_state: tuple[Message, ...]
    """What people and tools said next; empty if nothing followed."""


def steps_of(recording: Recording, *, now: float) -> list[RecordedStep]:
    """The turns, each the parent of the next. What was recorded alike always has the same ids."""
    steps: list[RecordedStep] = []
    for at in recording.responses:
        before, response = recording.messages[:at], recording.messages[at]
        reaction = following(recording.messages, at)
        id = _id(before, response, reaction, recording.tools)
        parent = steps[-1].turn if steps else None
        turn = ImportedTurn(
            id=id,
            scope=SCOPE,
            session=id if parent is None else parent.session,
            parent=None if parent is None else parent.id,
            kind=Kind.MAIN,
            created=now,
            model=recording.model,
            conversation=Conversation(messages=before, tools=recording.tools),
            message=response,
            finish=Finish.TOOL_CALLS if response.tool_calls else Finish.STOP,
        )
        steps.append(RecordedStep(turn=turn, next_state=reaction))
    return steps


def following(messages: Sequence[Message], at: int) -> tuple[Message, ...]:
    """What people and tools said after the message at `at`, up to the assistant's next one.

    If neither did, what the client's system messages told of it.
    """
    behind = tuple(takewhile(lambda message: message.role != "assistant", messages[at + 1 :]))
    return tuple(message for message in behind if message.role in ("user", "tool")) or observed(behind)


def _id(
    before: Sequence[Message],
    response: Message,
    reaction: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
) -> str:
    said = [[message.to_dict() for message in part] for part in (before, (response,), reaction)]
    packed = json.dumps([*said, [dict(tool) for tool in tools]], sort_keys=True).encode()
    return digest_id(hashlib.sha256(packed).digest()[:16])
