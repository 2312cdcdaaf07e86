"""A turn to export with what is known of it, and why a turn is left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from afterwit.lifecycle import Reason, State
from afterwit.message import Message
from afterwit.terms import untrainable
from afterwit.turn import RecordedTurn, Turn
from afterwit.verdict import NextState, Verdict

NEVER = frozenset(
    {
        Reason.REVERTED,
        Reason.CLIENT_LEFT,
        Reason.SIDE_TURN,
        Reason.UNKNOWN_BRANCH,
        Reason.AMBIGUOUS_PARENT,
        Reason.KEY_DOES_NOT_TEACH,
        Reason.EMPTY_RESPONSE,
        Reason.CUT_AT_LENGTH,
        Reason.INVALID_VOTES,
        Reason.REVIEW_REFUSED,
        Reason.EXCLUDED,
        Reason.HOLDS_SECRET,
    }
)
"""Ends that hold for every trainer, not only for ours: such a turn is in no training data."""

NOT_JUDGED = "not_judged"
"""The reason of a turn that has no verdict and did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A recorded turn, as the store knows it."""

    turn: RecordedTurn
    state: State
    reason: Reason | None
    verdict: Verdict | None
    next_state: NextState | None
    rl: bool
    opd: bool
    """The terms of the loss that its verdict gives it."""
    trained_in: tuple[int, ...]
    advantage: float
    """Of every token of the response in RL."""
    hinted: tuple[Message, ...]
    """The prompt's messages with the shortest hint, as the teacher reads them; (): there is no hint."""

    @property
    def prompt_key(self) -> str:
        """The same for turns that a scope sampled from the same conversation and tools."""
        said = {**self.turn.conversation.to_dict(), "scope": self.turn.scope}
        return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A turn that is not in the data, and why."""

    turn: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An example with its verdict."""

    example: Example
    verdict: Verdict

    @property
    def hint(self) -> str | None:
        """The shortest hint."""
        return self.verdict.hints[0] if self.verdict.hints else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A judged example that was sampled here."""

    example: Example
    turn: Turn
    verdict: Verdict


def judged(example: Example) -> Judged | LeftOut:
    """The example if a verdict on it holds for any trainer."""
    turn = example.turn
    reason = example.reason
    if reason in NEVER:
        return LeftOut(turn=turn.id, reason=reason.value)
    never = untrainable(turn)
    if never is not None and never in NEVER:
        return LeftOut(turn=turn.id, reason=never.value)
    if example.verdict is None:
        return LeftOut(turn=turn.id, reason=reason.value if reason else NOT_JUDGED)
    return Judged(example=example, verdict=example.verdict)


def sampled(examples: Iterable[Example]) -> Iterator[Sampled | LeftOut]:
    """The judged examples whose ids and log-probs are those that were sampled from the policy."""
    for example in examples:
        found = judged(example)
        if isinstance(found, LeftOut):
            yield found
        elif (reason := untrainable(example.turn)) is not None or not isinstance(example.turn, Turn):
            yield LeftOut(turn=example.turn.id, reason=(reason or Reason.NOT_SAMPLED_HERE).value)
        else:
            yield Sampled(example=example, turn=example.turn, verdict=found.verdict)


def template_of(turn: RecordedTurn) -> dict[str, str | None]:
    """What the chat template was given beside the messages, as JSON texts: schemas differ from row to row."""
    said = turn.conversation
    return {
        "tools": orjson.dumps([dict(tool) for tool in said.tools]).decode() if said.tools else None,
        "template_args": orjson.dumps(dict(said.template_args)).decode() if said.template_args else None,
    }


def messages_of(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """In OpenAI chat's form."""
    return [message.to_dict() for message in messages]


def trains(turn: Turn) -> list[int]:
    """1 for each sampled token, 0 for each that a grammar or the caller forced."""
    return [int(not forced) for forced in turn.sampled.forced]


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
