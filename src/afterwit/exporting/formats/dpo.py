"""Pairs to prefer: one prompt, a response that was good and one that was not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from afterwit.exporting.example import Example, LeftOut, demonstrations, messages_of
from afterwit.exporting.formats.sft import beside

NOTHING_WORSE = "no_worse_response"
"""The reason of a good turn to whose prompt no bad response is known."""


def rows(examples: Iterable[Example]) -> Iterator[Mapping[str, Any] | LeftOut]:
    """One row for each prompt to which a good and a bad response are known."""
    for found in demonstrations(examples):
        if isinstance(found, LeftOut):
            yield found
        elif found.worse is None:
            yield LeftOut(turn=found.prompt.example.turn.id, reason=NOTHING_WORSE)
        else:
            yield {
                "prompt": messages_of(found.prompt.example.turn.conversation.messages),
                "chosen": messages_of([found.response]),
                "rejected": messages_of([found.worse]),
                **beside(found),
                "chosen_turn": found.response_turn,
                "rejected_turn": found.worse_turn,
            }
