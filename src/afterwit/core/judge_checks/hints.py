"""Whether a hint makes likelier what the person then accepted, more than the hint of another turn does.

Had the hint been known at once, the model should have given the answer that it was thanked for in the end.
So that answer's ids, as they were sampled, are scored behind the prompt of the turn that drew the hint: with
this hint, and with another turn's. A hint that says something of this turn wins more often than not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from afterwit.core.judge_checks.calibration import Share
from afterwit.core.judge_checks.judged import Judged
from afterwit.core.progress import Interval, bootstrap_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class HintPair:
    """What is to be scored, as ids of turns."""

    turn: str
    """It drew a complaint and a hint."""
    accepted: str
    """The answer to that complaint, in a request that then ended well."""
    other: str
    """A turn of another session that drew a hint."""


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


def hint_pairs(judged: Sequence[Judged], checked: Collection[str]) -> Iterator[HintPair]:
    """The hints that can be checked, of turns that are not in `checked`. Which other hint follows from the
    turn."""
    sessions: defaultdict[str, list[Judged]] = defaultdict(list)
    for each in sorted(judged, key=lambda each: each.seq):
        sessions[each.session].append(each)
    hinted = [each for each in judged if each.hinted]
    for session, turns in sessions.items():
        others = [each.turn for each in hinted if each.session != session]
        for at, each in enumerate(turns):
            complaint = each.hinted and each.reward == -1 and each.ended_well is False
            if complaint and others and each.turn not in checked and _ends_well(turns[at + 1 :]):
                other = Random(each.turn).choice(others)
                yield HintPair(turn=each.turn, accepted=turns[at + 1].turn, other=other)


def _ends_well(turns: Sequence[Judged]) -> bool:
    """Whether the first of these was not found bad, and their first request ended well."""
    ends = (each.ended_well for each in turns if each.ended_well is not None)
    return next(ends, False) and turns[0].reward >= 0


def hint_lifts(found: Sequence[HintLift]) -> HintLifts:
    """What the lifts say together."""
    beyond = [each.beyond_chance for each in found]
    return HintLifts(
        wins=Share(count=sum(value > 0 for value in beyond), of=len(beyond)),
        mean=fmean(beyond) if beyond else None,
        interval=bootstrap_mean(beyond, seed=len(beyond)) if beyond else None,
    )
