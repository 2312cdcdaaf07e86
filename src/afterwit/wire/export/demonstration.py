"""Responses worth imitating, and what they are better than."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from afterwit.core.message import Message
from afterwit.core.verdict import NextState
from afterwit.wire.export.example import Example, Judged, LeftOut, judged

NOTHING_BETTER = "no_better_response"
"""The reason of a turn that was not good, to whose prompt no better response is known."""


class Kind(StrEnum):
    """Where a good response to a prompt comes from."""

    GOOD = "good"
    """It was sampled for this prompt, and its reward is +1."""
    CORRECTED = "corrected"
    """It was given after a person's correction, with that in view, and its reward is +1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A prompt with a good response."""

    prompt: Judged
    """The turn whose prompt it is; its own response is not always the good one."""
    response: Message
    response_turn: str
    kind: Kind
    worse: Message | None
    """A response sampled for the same prompt, of reward -1; None: there is none."""
    worse_turn: str | None


def demonstrations(examples: Iterable[Example]) -> Iterator[Demonstration | LeftOut]:
    """What the examples, which are iterated twice, show. The responses are in memory, not the prompts.

    A turn of reward -1 gets the response that followed a person's words alone and was good. If a tool
    answered first, the later response rests on what the tool said: it is none to the earlier prompt.
    """
    worse = dict[str, tuple[str, Message]]()
    better = dict[str, tuple[str, Message]]()
    for example in examples:
        found = judged(example)
        if isinstance(found, LeftOut):
            continue
        response = (example.turn.id, example.turn.message)
        if found.verdict.reward < 0:
            worse.setdefault(example.prompt_key, response)
        elif found.verdict.reward > 0 and example.turn.parent is not None:
            better.setdefault(example.turn.parent, response)
    for example in examples:
        found = judged(example)
        yield found if isinstance(found, LeftOut) else _shown(found, worse, better)


def _shown(
    found: Judged, worse: dict[str, tuple[str, Message]], better: dict[str, tuple[str, Message]]
) -> Demonstration | LeftOut:
    turn = found.example.turn
    if found.verdict.reward > 0:
        worse_turn, worse_response = worse.get(found.example.prompt_key, (None, None))
        return Demonstration(
            prompt=found,
            response=turn.message,
            response_turn=turn.id,
            kind=Kind.GOOD,
            worse=worse_response,
            worse_turn=worse_turn,
        )
    if found.verdict.reward < 0 and turn.id in better and _only_people(found.example.next_state):
        better_turn, better_response = better[turn.id]
        return Demonstration(
            prompt=found,
            response=better_response,
            response_turn=better_turn,
            kind=Kind.CORRECTED,
            worse=turn.message,
            worse_turn=turn.id,
        )
    return LeftOut(turn=turn.id, reason=NOTHING_BETTER)


def _only_people(next_state: NextState | None) -> bool:
    return (
        next_state is not None
        and bool(next_state.messages)
        and all(message.role == "user" for message in next_state.messages)
    )
