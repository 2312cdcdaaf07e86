"""Whether the judge's votes can be read, and whether they agree. A judge that never parses must not look like
nothing to learn."""

from __future__ import annotations

from collections import deque

from afterwit.core.judge_checks import MOST_WRONG, agreement
from afterwit.core.judging.voting import CUT
from afterwit.core.verdict import Question, Verdict

REMEMBERED = 60
"""Votes: ten turns of two questions with three answers each."""
FEWEST = 12
"""Votes below which a share says nothing."""
COMPARED = 60
"""Turns whose votes on the reward are compared."""
FEWEST_COMPARED = 12
MOST_INVALID = 0.5
"""Share of invalid votes above which the judge itself is at fault, and not single answers."""


class RecentVotes:
    """The last votes of one judge stage."""

    def __init__(self) -> None:
        self._valid: deque[bool] = deque(maxlen=REMEMBERED)
        self._cut: deque[bool] = deque(maxlen=REMEMBERED)
        self._rewards: deque[list[int]] = deque(maxlen=COMPARED)

    def add(self, verdict: Verdict) -> None:
        self._valid.extend(vote.value is not None for vote in verdict.votes)
        self._cut.extend(vote.rejected == CUT for vote in verdict.votes)
        asked = [vote for vote in verdict.votes if vote.question is Question.EVALUATION]
        self._rewards.append([vote.value for vote in asked if vote.value is not None])

    @property
    def doubtful(self) -> bool:
        """Whether votes on one turn differ as if too many answers were wrong."""
        found = agreement(self._rewards)
        return found.wrong is not None and found.turns >= FEWEST_COMPARED and found.wrong > MOST_WRONG

    def warning(self) -> str | None:
        """What is wrong, None while most votes can be read."""
        seen, invalid = len(self._valid), self._valid.count(False)
        if seen < FEWEST or invalid <= MOST_INVALID * seen:
            return None
        cut = 2 * self._cut.count(True) > invalid
        remedy = "raise judge.max_tokens" if cut else "set judge.url to a stronger model"
        return (
            f"more than half of the judge's last votes {'were cut' if cut else 'cannot be read'}, so turns"
            f" end as invalid_votes: {remedy}"
        )
