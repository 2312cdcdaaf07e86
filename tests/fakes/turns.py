"""Turns made up for tests."""

from __future__ import annotations

from typing import Any

from afterwit.turn import Conversation, Finish, Kind, Message, Sampled, Sampling, Turn


def a_turn(id: str, **changes: Any) -> Turn:
    fields: dict[str, Any] = {
        "id": id,
        "scope": "key/agent",
        "session": "session",
        "parent": None,
        "kind": Kind.MAIN,
        "created": 0.0,
        "model": "policy",
        "conversation": Conversation(messages=(Message(role="user", content="Open it."),)),
        "prompt_ids": (1, 2, 3),
        "sampling": Sampling(max_tokens=8),
        "sampled": Sampled(ids=(4, 5), logprobs=(-0.5, -0.25), versions=(0, 0), forced=(False, False)),
        "message": Message(role="assistant", content="Done."),
        "finish": Finish.STOP,
    }
    return Turn(**fields | changes)
