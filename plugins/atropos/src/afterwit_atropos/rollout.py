"""A recorded rollout: its turns with their next states, and what became of each in hindsight. Pure.

The tokens, masks, log-probs and places of its turns are those of its `sequences`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from afterwit.api.judging import (
    following,
)
from afterwit.api.turns import Feedback, Message, NextState, Reason, TeacherRow, Turn, Verdict


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
                raise ValueError(f"the turn at index {at} is a message of the {self.messages[at].role}")
            if self.messages[at] != turn.message:
                raise ValueError(f"turn {turn.id} differs from the message at its index {at}")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTurn:
    """A turn that distils."""

    turn: Turn
    verdict: Verdict
    hints: tuple[str, ...]
    """The hints whose teachers ran."""
    chosen: tuple[int, ...]
    """For each sampled token, the index of the hint whose teacher its row is of."""
    rows: tuple[TeacherRow, ...]
    """For each sampled token, the id that ended the turn included."""
    teacher_version: int
    """The weight version that scored."""

    def __post_init__(self) -> None:
        ids = self.turn.sampled.ids
        if not len(self.rows) == len(self.chosen) == len(ids):
            raise ValueError(f"{len(ids)} ids but {len(self.rows)} rows and {len(self.chosen)} choices")
        if any(row.ids[0] != sampled for row, sampled in zip(self.rows, ids, strict=True)):
            raise ValueError(f"a row of turn {self.turn.id} does not begin with the sampled id")
        if any(not 0 <= hint < len(self.hints) for hint in self.chosen):
            raise ValueError(f"a token of turn {self.turn.id} chose none of its {len(self.hints)} hints")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscored:
    """A turn without rows, why, and its verdict if it was judged."""

    turn: Turn
    reason: Reason
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    """A rollout with what became of each of its turns, in order."""

    rollout: Rollout
    turns: tuple[ScoredTurn | Unscored, ...]
    teacher: str
    """The weights that score: `live` or `base`."""

    def __post_init__(self) -> None:
        given, scored = [turn.id for turn in self.rollout.in_order], [each.turn.id for each in self.turns]
        if given != scored:
            raise ValueError(f"a rollout of {len(given)} turns is scored with {len(scored)}, or others")

    @property
    def scored(self) -> tuple[ScoredTurn, ...]:
        return tuple(turn for turn in self.turns if isinstance(turn, ScoredTurn))

    @property
    def unscored(self) -> Counter[Reason]:
        """The number of turns without rows, by reason."""
        return Counter(turn.reason for turn in self.turns if isinstance(turn, Unscored))


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The sampled ids of one turn, [begin, end) of its sequence; the id that ended the turn is among them."""

    turn: Turn
    begin: int
    end: int

    def __post_init__(self) -> None:
        if self.end - self.begin != len(self.turn.sampled.ids):
            length = self.end - self.begin
            raise ValueError(f"turn {self.turn.id}: {len(self.turn.sampled.ids)} ids, but a span of {length}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSequence:
    """The ids of one forward pass, with a mask of the sampled ones."""

    ids: tuple[int, ...]
    spans: tuple[Span, ...]
    """In order; between them is what templates and tools wrote."""

    def __post_init__(self) -> None:
        at = 0
        for span in self.spans:
            if span.begin < at:
                raise ValueError(f"the span of turn {span.turn.id} begins at {span.begin}, before {at}")
            if self.ids[: span.begin] != span.turn.prompt_ids:
                raise ValueError(f"turn {span.turn.id} was sampled after another prompt than its sequence's")
            if self.ids[span.begin : span.end] != span.turn.sampled.ids:
                raise ValueError(f"turn {span.turn.id} sampled other ids than those of its span")
            at = span.end

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mask(self) -> tuple[bool, ...]:
        """Whether a token may be in a loss: the policy sampled it, and nothing forced it."""
        return tuple(logprob is not None for logprob in self.logprobs)

    @property
    def logprobs(self) -> tuple[float | None, ...]:
        """pi_b of every token that may be in a loss; None for the others."""
        values: list[float | None] = [None] * len(self.ids)
        for span in self.spans:
            sampled = span.turn.sampled
            for at, logprob, forced in zip(
                range(span.begin, span.end), sampled.logprobs, sampled.forced, strict=True
            ):
                values[at] = None if forced else logprob
        return tuple(values)


def sequences(turns: Iterable[Turn]) -> tuple[TokenSequence, ...]:
    """The turns of a rollout, in order, in as few sequences as their prompts allow."""
    found: list[TokenSequence] = []
    ids: tuple[int, ...] = ()
    spans: list[Span] = []
    for turn in turns:
        prompt = turn.prompt_ids
        if spans and prompt[: len(ids)] != ids:
            found.append(TokenSequence(ids=ids, spans=tuple(spans)))
            spans = []
        ids = (*prompt, *turn.sampled.ids)
        spans.append(Span(turn=turn, begin=len(prompt), end=len(ids)))
    if spans:
        found.append(TokenSequence(ids=ids, spans=tuple(spans)))
    return tuple(found)
