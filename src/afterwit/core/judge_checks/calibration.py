"""Whether the judge's votes agree with what people said outright, and with how requests ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from afterwit.core.judge_checks.judged import Judged
from afterwit.core.judging.voting import reward
from afterwit.core.progress import Interval, difference_interval, wilson_interval
from afterwit.core.verdict import Question, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many of how many."""

    count: int
    of: int

    @property
    def share(self) -> float | None:
        """None of nothing."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> Interval:
        """In 95 of 100 cases."""
        return wilson_interval(self.count, self.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Answers of a judge that was not shown the feedback, on turns with explicit feedback of 1 or -1."""

    right: Share
    too_kind: Share
    """Of the turns with feedback -1: those that it called good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """How requests ended, by what votes had said of the steps before their ends."""

    good: Share
    """Of the steps called good: those whose request ended well."""
    bad: Share
    """Of the steps called bad."""

    @property
    def difference(self) -> Interval:
        """Of the share of good steps minus that of bad ones."""
        return difference_interval((self.bad.count, self.bad.of), (self.good.count, self.good.of))


def calibration(judged: Iterable[Judged]) -> Calibration:
    """How often the judge said what people said. A vote of 0 is wrong: the person had an opinion."""
    pairs = [
        (each.feedback, vote) for each in judged if each.feedback for vote in each.values(Question.BLIND)
    ]
    bad = [vote for said, vote in pairs if said == -1]
    return Calibration(
        right=Share(count=sum(said == vote for said, vote in pairs), of=len(pairs)),
        too_kind=Share(count=bad.count(1), of=len(bad)),
    )


def outcomes(judged: Sequence[Judged]) -> Outcomes:
    """How the requests ended whose steps votes called good or bad. The turns that ended them are left out:
    their votes have read the end."""
    called = [
        (said, well)
        for each, well in _steps(judged)
        if each.source is Source.VOTES and (said := reward(each.values(Question.EVALUATION)))
    ]
    return Outcomes(good=_ended_well(called, 1), bad=_ended_well(called, -1))


def _steps(judged: Sequence[Judged]) -> Iterator[tuple[Judged, bool]]:
    """Each turn before the end of its request, and whether that ended well."""
    waiting: defaultdict[str, list[Judged]] = defaultdict(list)
    for each in sorted(judged, key=lambda each: each.seq):
        if each.ended_well is None:
            waiting[each.session].append(each)
        else:
            yield from ((step, each.ended_well) for step in waiting.pop(each.session, ()))


def _ended_well(called: Sequence[tuple[int, bool]], said: int) -> Share:
    ends = [well for value, well in called if value == said]
    return Share(count=sum(ends), of=len(ends))
