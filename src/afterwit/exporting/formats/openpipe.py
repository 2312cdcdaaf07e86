"""Conversations in OpenAI's chat fine-tuning format, with the fields that OpenPipe adds to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from afterwit.exporting.example import Demonstration, Example, LeftOut, demonstrations, messages_of

TEST_OF = 10
"""One session in this number is held out: its lines have the split TEST."""


def rows(examples: Iterable[Example]) -> Iterator[Mapping[str, Any] | LeftOut]:
    """One line for each prompt to which a good response is known."""
    for found in demonstrations(examples):
        yield found if isinstance(found, LeftOut) else _row(found)


def _row(found: Demonstration) -> dict[str, Any]:
    turn = found.prompt.example.turn
    before = [_weighted(message, 0) for message in messages_of(turn.conversation.messages)]
    tools = [dict(tool) for tool in turn.conversation.tools]
    return {
        "messages": [*before, _weighted(found.response.to_dict(), 1)],
        **({"tools": tools} if tools else {}),
        **({} if found.worse is None else {"rejected_message": found.worse.to_dict()}),
        "split": _split(turn.session),
        "metadata": _metadata(found),
    }


def _weighted(message: dict[str, Any], weight: int) -> dict[str, Any]:
    """A message of the assistant with its weight in the loss; any other as it is."""
    return {**message, "weight": weight} if message["role"] == "assistant" else message


def _split(session: str) -> str:
    """By session, so that no conversation is on both sides; the same at every export."""
    digest = hashlib.sha256(session.encode()).digest()
    return "TEST" if int.from_bytes(digest[:4]) % TEST_OF == 0 else "TRAIN"


def _metadata(found: Demonstration) -> dict[str, str]:
    turn = found.prompt.example.turn
    facts = {
        "turn": turn.id,
        "session": turn.session,
        "kind": found.kind.value,
        "response_turn": found.response_turn,
        "hint": found.prompt.hint,
    }
    return {name: value for name, value in facts.items() if value is not None}
