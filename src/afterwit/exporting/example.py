"""Turns to export, the reasons to leave one out, and the demonstrations among them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import orjson

from afterwit.lifecycle import Reason
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
"""Reasons that hold for every trainer: such a turn is in no training data."""

NOT_JUDGED = "not_judged"
"""The reason of a turn without a verdict that has not ended."""

NOTHING_BETTER = "no_better_response"
"""The reason of a turn without a positive reward to whose prompt no better response is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A recorded turn, as the store knows it."""

    turn: RecordedTurn
    reason: Reason | None
    verdict: Verdict | None
    next_state: NextState | None
    rl: bool
    opd: bool
    """The terms of the loss that its verdict gives it."""
    advantage: float
    """The RL advantage of every token of the response."""
    hinted: tuple[Message, ...]
    """The prompt's messages with the shortest hint, as the teacher reads them; empty without a hint."""

    @property
    def hint(self) -> str | None:
        """The shortest hint."""
        return self.verdict.hints[0] if self.verdict is not None and self.verdict.hints else None

    @property
    def prompt_key(self) -> str:
        """Equal for turns that a scope sampled from the same conversation and tools."""
        said = {**self.turn.conversation.to_dict(), "scope": self.turn.scope}
        return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A turn that is not in the data, and why."""

    turn: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A judged example that was sampled here."""

    example: Example
    turn: Turn
    verdict: Verdict


def judged(example: Example) -> Verdict | LeftOut:
    """The verdict, if it holds for any trainer."""
    turn, reason = example.turn, example.reason
    for never in (reason, untrainable(turn)):
        if never in NEVER:
            return LeftOut(turn=turn.id, reason=never.value)
    if example.verdict is None:
        return LeftOut(turn=turn.id, reason=reason.value if reason else NOT_JUDGED)
    return example.verdict


def sampled(examples: Iterable[Example]) -> Iterator[Sampled | LeftOut]:
    """The judged examples whose ids and log-probs were sampled from the policy."""
    for example in examples:
        verdict = judged(example)
        if isinstance(verdict, LeftOut):
            yield verdict
        elif (reason := untrainable(example.turn)) is not None or not isinstance(example.turn, Turn):
            yield LeftOut(turn=example.turn.id, reason=(reason or Reason.NOT_SAMPLED_HERE).value)
        else:
            yield Sampled(example=example, turn=example.turn, verdict=verdict)


class Kind(StrEnum):
    """The origin of a good response."""

    GOOD = "good"
    """It was sampled for this prompt, and its reward is +1."""
    CORRECTED = "corrected"
    """It followed a person's correction, and its reward is +1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A prompt with a good response."""

    example: Example
    """The turn with the prompt; its own response is not always the good one."""
    response: Message
    response_turn: str
    kind: Kind
    worse: Message | None
    """A response of reward -1 that was sampled for the same prompt; None: there is none."""
    worse_turn: str | None


def demonstrations(examples: Iterable[Example]) -> Iterator[Demonstration | LeftOut]:
    """The demonstrations of the examples, which are iterated twice. Memory holds the responses only.

    A turn of reward -1 gets the response that followed a person's words alone and was good. If a tool
    answered first, the later response depends on the tool's words: it does not answer the earlier prompt.
    """
    worse = dict[str, tuple[str, Message]]()
    better = dict[str, tuple[str, Message]]()
    for example in examples:
        verdict = judged(example)
        if isinstance(verdict, LeftOut):
            continue
        response = (example.turn.id, example.turn.message)
        if verdict.reward < 0:
            worse.setdefault(example.prompt_key, response)
        elif verdict.reward > 0 and example.turn.parent is not None:
            better.setdefault(example.turn.parent, response)
    for example in examples:
        verdict, turn = judged(example), example.turn
        if isinstance(verdict, LeftOut):
            yield verdict
        elif verdict.reward > 0:
            worse_turn, worse_response = worse.get(example.prompt_key, (None, None))
            yield Demonstration(
                example=example,
                response=turn.message,
                response_turn=turn.id,
                kind=Kind.GOOD,
                worse=worse_response,
                worse_turn=worse_turn,
            )
        elif verdict.reward < 0 and turn.id in better and _only_people(example.next_state):
            better_turn, better_response = better[turn.id]
            yield Demonstration(
                example=example,
                response=better_response,
                response_turn=better_turn,
                kind=Kind.CORRECTED,
                worse=turn.message,
                worse_turn=turn.id,
            )
        else:
            yield LeftOut(turn=turn.id, reason=NOTHING_BETTER)


def _only_people(next_state: NextState | None) -> bool:
    messages = () if next_state is None else next_state.messages
    return bool(messages) and all(message.role == "user" for message in messages)
