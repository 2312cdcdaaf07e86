"""Whether a hint makes likelier what the person then accepted, more than the hint of another turn does.

Had the hint been known at once, the model should have given the answer that it was thanked for in the end.
So that answer's ids, as they were sampled, are scored behind the prompt of the turn that drew the hint: with
this hint, and with another turn's. A hint that says something of this turn wins more often than not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from afterwit.core.judge_checks.calibration import Share
from afterwit.core.progress import Interval, bootstrap_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class HintLift:
    """One hint: mean log-probs of the accepted response's tokens, in nats, by weights that never learned."""

    turn: str
    """The turn that drew the hint."""
    plain: float
    """Behind its prompt alone."""
    hinted: float
    """Behind its prompt with the hint."""
    other: float
    """Behind its prompt with the hint of another turn."""

    @property
    def beyond_chance(self) -> float:
        """How much likelier than with the other hint."""
        return self.hinted - self.other


@dataclass(frozen=True, slots=True, kw_only=True)
class HintLifts:
    """Over the hints that were checked."""

    wins: Share
    """Hints that raise the accepted answer more than another turn's does."""
    mean: float | None
    """Mean nats a token beyond the other hint; None without a hint."""
    interval: Interval | None


def hint_lifts(found: Sequence[HintLift]) -> HintLifts:
    """What the lifts say together."""
    beyond = [each.beyond_chance for each in found]
    return HintLifts(
        wins=Share(count=sum(value > 0 for value in beyond), of=len(beyond)),
        mean=fmean(beyond) if beyond else None,
        interval=bootstrap_mean(beyond, seed=len(beyond)) if beyond else None,
    )
