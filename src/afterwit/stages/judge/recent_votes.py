"""Whether the judge's votes can be read. A judge that never parses must not look like nothing to learn."""

from __future__ import annotations

from collections import deque

from afterwit.core.verdict import Verdict

REMEMBERED = 60
"""Votes: ten turns of two questions with three answers each."""
FEWEST = 12
"""Votes below which a share says nothing."""
MOST_INVALID = 0.5
"""Share of invalid votes above which the judge itself is at fault, and not single answers."""


class RecentVotes:
    """The last votes of one judge stage."""

    def __init__(self) -> None:
        self._valid: deque[bool] = deque(maxlen=REMEMBERED)

    def add(self, verdict: Verdict) -> None:
        self._valid.extend(vote.value is not None for vote in verdict.votes)

    def warning(self) -> str | None:
        """What is wrong, None while most votes can be read."""
        seen, invalid = len(self._valid), self._valid.count(False)
        if seen < FEWEST or invalid <= MOST_INVALID * seen:
            return None
        return (
            "more than half of the judge's last votes are invalid, so turns end as invalid_votes:"
            " raise judge.max_tokens if the judge thinks, and run `afterwit doctor`"
        )
