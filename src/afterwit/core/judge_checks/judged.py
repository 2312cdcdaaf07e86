"""What the checks read of a judged turn."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.core.verdict import Question, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A judged turn without its words."""

    seq: int
    """The order of arrival."""
    turn: str
    session: str
    reward: int
    source: Source
    hinted: bool
    feedback: int | None
    """The reward of the newest explicit feedback; None: there is none, or it has only words."""
    ended_well: bool | None
    """Whether the request that ended with it did so without a complaint, a repeated call or an answer that
    was cut; None: it ended none."""
    votes: tuple[tuple[Question, int | None], ...]
    """Each answer of the judge as it was read; None: invalid."""

    def values(self, question: Question) -> list[int]:
        """The valid votes on a question."""
        return [value for asked, value in self.votes if asked is question and value is not None]
