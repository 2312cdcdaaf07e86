"""A recorded rollout: its turns with their next states, and what became of each in hindsight. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from afterwit.api.judging import following
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


def pairs(rollout: Rollout) -> list[tuple[Turn, NextState | None]]:
    """Each turn, in order, with everything up to the next response; None if nothing followed."""
    found: list[tuple[Turn, NextState | None]] = []
    for at, turn in sorted(rollout.turns.items()):
        messages = following(rollout.messages, at)
        outcome = rollout.outcome if at == max(rollout.turns) else None
        nothing = not messages and outcome is None
        found.append((turn, None if nothing else NextState(messages=messages, feedback=outcome)))
    return found


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


TurnInHindsight = ScoredTurn | Unscored


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    """A rollout with what became of each of its turns, in order."""

    rollout: Rollout
    turns: tuple[TurnInHindsight, ...]
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
