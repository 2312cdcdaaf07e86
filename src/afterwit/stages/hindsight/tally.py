"""What could not be scored, and when that is too much. A run whose turns all fail must not look like one with
nothing to learn."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from afterwit.core.errors import TooManyUnscored
from afterwit.core.lifecycle import CLASS_OF, Reason, ReasonClass
from afterwit.core.rollout import ScoredTurn, Unscored

REMEMBERED = 400
"""Turns."""
REMEDIES = {
    Reason.JUDGE_FAILED: "see whether the judge answers (judge.url, judge.timeout_s), and its context",
    Reason.INVALID_VOTES: "raise judge.max_tokens if the judge thinks, or take a more capable one",
    Reason.RENDER_MISMATCH: "prompts must be rendered by the model's own template, from the messages, "
    "tools and arguments that their turns hold, and judge.placement must be one that it takes",
    Reason.TOO_LONG: "raise engine.context_length, or shorten the rollouts",
    Reason.TEACHER_FAILED: "see the log for what the engine said",
    Reason.NOT_FINITE: "the teacher rules out what the policy sampled: are both the same model?",
}


class Tally:
    """The last turns of a run."""

    def __init__(self, *, most: float, fewest: int) -> None:
        """`most`: the share that may fail; `fewest`: turns below which a share says nothing."""
        self._most, self._fewest = most, fewest
        self._failed: deque[Reason | None] = deque(maxlen=max(REMEMBERED, fewest))
        self.reasons: Counter[Reason] = Counter()
        """Why turns of the whole run have no rows, those that taught nothing included."""
        self.scored = 0
        """Turns of the whole run that have rows."""

    def add(self, turns: Iterable[ScoredTurn | Unscored]) -> None:
        """Count a rollout's turns. TooManyUnscored if too many of the last ones failed."""
        for turn in turns:
            reason = turn.reason if isinstance(turn, Unscored) else None
            self.scored += reason is None
            if reason is not None:
                self.reasons[reason] += 1
            self._failed.append(reason if reason is not None and is_failure(reason) else None)
        failures = Counter(reason for reason in self._failed if reason is not None)
        seen, failed = len(self._failed), failures.total()
        if seen < self._fewest or failed <= self._most * seen:
            return
        reason, times = failures.most_common(1)[0]
        raise TooManyUnscored(
            f"{failed} of the last {seen} turns could not be scored, {times} of them because of {reason}: "
            + REMEDIES.get(reason, "see what their turns say"),
            reason=reason,
        )


def is_failure(reason: Reason) -> bool:
    """Whether a turn should have had rows. One that taught nothing should not."""
    return CLASS_OF[reason] is not ReasonClass.NOTHING_TO_LEARN
