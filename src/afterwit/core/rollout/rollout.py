"""A recorded rollout: its turns with their next states, and the samples that judging makes of them. Pure.

The tokens, masks, log-probs and places of its turns are those of its `sequences`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afterwit.core.judged_turn import JudgedTurn
from afterwit.core.judging import (
    Answer,
    JudgeCall,
    JudgePrompts,
    VoteRules,
    case_of,
    conclude,
    questions,
    without_answered_calls,
)
from afterwit.core.lifecycle import Reason
from afterwit.core.message import Message
from afterwit.core.recording import following
from afterwit.core.rollout.token_sequence import TokenSequence, sequences
from afterwit.core.terms import Reads, untrainable
from afterwit.core.turn import Turn
from afterwit.core.verdict import Feedback, NextState, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A finished conversation with its turns."""

    messages: tuple[Message, ...]
    turns: Mapping[int, Turn]
    """The turn whose response is at this index of `messages`."""
    outcome: Feedback | None = None
    """The task's own outcome, as feedback on the last turn."""

    def __post_init__(self) -> None:
        for at, turn in self.turns.items():
            if not 0 <= at < len(self.messages):
                raise ValueError(f"a turn at index {at}, but there are {len(self.messages)} messages")
            if self.messages[at].role != "assistant":
                raise ValueError(f"the turn at index {at} is said by {self.messages[at].role}")
            if self.messages[at] != turn.message:
                raise ValueError(f"turn {turn.id} said something else than the message at its index {at}")

    @property
    def in_order(self) -> tuple[Turn, ...]:
        """The turns as they were taken."""
        return tuple(self.turns[at] for at in sorted(self.turns))

    @property
    def sequences(self) -> tuple[TokenSequence, ...]:
        """Its tokens, with the loss mask and the sampled log-probs.

        One sequence, if every turn's prompt is all that was before it.
        """
        return sequences(self.in_order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A turn that does not train, why, and its verdict if it was judged."""

    turn: Turn
    reason: Reason
    verdict: Verdict | None = None


def pairs(rollout: Rollout) -> list[tuple[Turn, NextState | None]]:
    """Each turn, in order, with everything up to the next response; None if nothing followed."""
    places = sorted(rollout.turns)
    return [
        (rollout.turns[at], _next_state(rollout, at, rollout.outcome if at == places[-1] else None))
        for at in places
    ]


def _next_state(rollout: Rollout, at: int, outcome: Feedback | None) -> NextState | None:
    behind = following(rollout.messages, at)
    if not behind and outcome is None:
        return None
    return NextState(messages=behind, feedback=outcome)


def samples(
    rollout: Rollout,
    ask: Callable[[Turn, JudgeCall], Answer],
    *,
    prompts: JudgePrompts,
    rules: VoteRules,
    schema_error: Callable[[Message, Sequence[Mapping[str, Any]]], str | None],
) -> list[JudgedTurn | Ended]:
    """What each turn teaches. The same answers give the same samples."""

    def sample(turn: Turn, next_state: NextState | None) -> JudgedTurn | Ended:
        if (reason := untrainable(turn)) is not None:
            return Ended(turn=turn, reason=reason)
        if next_state is None:
            return Ended(turn=turn, reason=Reason.NO_NEXT_STATE)
        unanswered = without_answered_calls(turn.message, next_state.messages)
        judged = case_of(turn, next_state, schema_error=schema_error(unanswered, turn.conversation.tools))
        answers = [(call, ask(turn, call)) for call in questions(judged, prompts, rules)]
        return sample_of(turn, conclude(judged, answers, rules), rules.reads)

    return [sample(turn, next_state) for turn, next_state in pairs(rollout)]


def sample_of(turn: Turn, verdict: Verdict, reads: Reads) -> JudgedTurn | Ended:
    """The sample of a judged turn under an objective that reads this, or its end."""
    found = reads.of(turn, verdict)
    if found.reason is not None:
        return Ended(turn=turn, reason=found.reason, verdict=verdict)
    return JudgedTurn(turn=turn, verdict=verdict, rl=found.rl, opd=found.opd)
