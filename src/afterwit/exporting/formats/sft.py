"""Conversations to imitate: prompt and completion, each in OpenAI chat's form, with the hint beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from afterwit.exporting.example import (
    Demonstration,
    Example,
    LeftOut,
    demonstrations,
    messages_of,
    template_of,
)


def rows(examples: Iterable[Example]) -> Iterator[Mapping[str, Any] | LeftOut]:
    """One row for each prompt to which a good response is known."""
    for found in demonstrations(examples):
        yield found if isinstance(found, LeftOut) else _row(found)


def _row(found: Demonstration) -> dict[str, Any]:
    return {
        "prompt": messages_of(found.prompt.example.turn.conversation.messages),
        "completion": messages_of([found.response]),
        **beside(found),
        "turn": found.prompt.example.turn.id,
        "completion_turn": found.response_turn,
    }


def beside(found: Demonstration) -> dict[str, Any]:
    """What a demonstration knows beside its messages."""
    example = found.prompt.example
    return {
        **template_of(example.turn),
        "kind": found.kind.value,
        "hint": found.prompt.hint,
        "hinted_prompt": messages_of(example.hinted) if example.hinted else None,
        "sampled": messages_of([example.turn.message]),
        "session": example.turn.session,
    }
