"""Checks of a judge by its votes, people's feedback, and how requests end. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

from afterwit.judging.voting import reward
from afterwit.progress import Interval, Z, difference_interval, wilson_interval
from afterwit.promotion.suite import TEXT
from afterwit.verdict import Question, Source

FEWEST_TURNS = 30
"""Turns needed before votes that differ count as evidence."""
MOST_WRONG = 0.2
"""Share of wrong answers that would make votes differ as often as they do."""
LEAST_RIGHT = 0.8
"""Share of right answers. A judge is surely below it if its whole interval is."""
KINDS, SHOWN, WIDTH = 32, 3, 60
"""Kinds of calls that are checked, the most frequent; the least right are shown, each by this width."""
UNTESTED = {
    False: "not known yet: `afterwit serve` tests it before it votes",
    True: "assumed: this judge votes without a test",
}
"""Of a judge without an examination, by whether it has voted: one that is examined votes only afterwards."""
MOST_INVALID = 0.5
"""Share of invalid votes above which the judge itself is at fault, and not single answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A judged turn without its words."""

    seq: int
    turn: str
    session: str
    reward: int
    source: Source
    hinted: bool
    version: int
    """The version that sampled its oldest token; 0 for an imported turn."""
    at: float
    """When it was judged."""
    feedback: int | None
    """The reward of the newest explicit feedback; None: there is none, or it has only words."""
    ended_well: bool | None
    """Whether the request that ended with it did so without a complaint, a repeated call or an answer that
    was cut; None: it ended none."""
    votes: tuple[tuple[Question, int | None], ...]
    """Each answer of the judge as it was read; None: invalid."""
    kind: str = TEXT
    """The kind of its first tool call, or text."""

    def values(self, question: Question) -> list[int]:
        """The valid votes on a question."""
        return [value for asked, value in self.votes if asked is question and value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many of how many."""

    count: int
    of: int

    @property
    def share(self) -> float | None:
        """None for 0 of 0."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> Interval:
        """The 95 % interval."""
        return wilson_interval(self.count, self.of)

    def __str__(self) -> str:
        return f"{self.count} of {self.of}"

    def described(self, none: str) -> str:
        return f"{self} ({self.interval.low:.0%} to {self.interval.high:.0%})" if self.of else none


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Over turns with two valid votes or more."""

    turns: int
    share: float | None
    """Of pairs of votes on one turn, those that are equal; a turn weighs by its votes. None: no turns."""

    @property
    def wrong(self) -> float | None:
        """The share of answers that would be wrong if each were by a chance of its own, and every answer one
        of two: w with 2 w (1 - w) pairs that differ. It sees no error that all votes share."""
        return None if self.share is None else (1 - math.sqrt(max(0.0, 2 * self.share - 1))) / 2

    def is_doubtful(self, fewest: int) -> bool:
        """Whether votes on `fewest` turns or more differ as if too many answers were wrong."""
        return self.wrong is not None and self.turns >= fewest and self.wrong > MOST_WRONG

    def __str__(self) -> str:
        if self.wrong is None:
            return "nothing to compare: it needs two votes on a turn"
        return (
            f"{self.share:.0%} of pairs on a turn agree, as if {self.wrong:.0%} of answers were wrong"
            f" ({self.turns} turns)"
        )


def agreement(units: Iterable[Sequence[int]]) -> Agreement:
    """The agreement of the votes of each turn. A turn with m votes counts each of its ordered pairs
    1 / (m - 1) times."""
    rated = [votes for votes in units if len(votes) > 1]
    if not rated:
        return Agreement(turns=0, share=None)
    differ = math.fsum(
        (len(votes) ** 2 - sum(count * count for count in Counter(votes).values())) / (len(votes) - 1)
        for votes in rated
    )
    return Agreement(turns=len(rated), share=1 - differ / sum(map(len, rated)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Answers of a judge that was not shown the feedback, on turns with explicit feedback of 1 or -1."""

    right: Share
    """A vote of 0 is wrong: the person had an opinion."""
    too_kind: Share
    """Of the turns with feedback -1: those that it called good."""

    @classmethod
    def of(cls, judged: Iterable[Judged]) -> Self:
        rated = [each for each in judged if each.feedback]
        pairs = [(each.feedback, vote) for each in rated for vote in each.values(Question.BLIND)]
        return cls(
            right=Share(count=sum(feedback == vote for feedback, vote in pairs), of=len(pairs)),
            too_kind=Share(count=pairs.count((-1, 1)), of=sum(feedback == -1 for feedback, _ in pairs)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """How requests ended, by the votes on the steps before their ends."""

    good: Share
    """Of the steps called good: those whose request ended well."""
    bad: Share
    """Of the steps called bad."""

    @classmethod
    def of(cls, judged: Iterable[Judged], *, kind: str | None = None) -> Self:
        """Of all steps, or of those of one kind. The turns that ended requests are left out: their votes have
        read the end."""
        ends: dict[int, list[bool]] = {1: [], -1: []}
        waiting: defaultdict[str, list[Judged]] = defaultdict(list)
        for each in sorted(judged, key=lambda each: each.seq):
            if each.ended_well is None:
                waiting[each.session].append(each)
                continue
            for step in waiting.pop(each.session, ()):
                if kind not in (None, step.kind):
                    continue
                if step.source is Source.VOTES and (vote := reward(step.values(Question.EVALUATION))):
                    ends[vote].append(each.ended_well)
        good, bad = (Share(count=sum(ends[vote]), of=len(ends[vote])) for vote in (1, -1))
        return cls(good=good, bad=bad)

    def difference(self, z: float = Z) -> Interval:
        """Of the share of good steps minus that of bad ones."""
        return difference_interval((self.bad.count, self.bad.of), (self.good.count, self.good.of), z=z)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfKind:
    """The checks over one kind of call: a judge may be wrong about one alone."""

    kind: str
    calibration: Calibration
    outcomes: Outcomes

    @property
    def known(self) -> bool:
        """Whether any check has a result."""
        return bool(self.calibration.right.of or self.outcomes.good.of or self.outcomes.bad.of)

    def __str__(self) -> str:
        right = self.calibration.right
        said = [f"agreed with feedback in {right}"] if right.of else []
        pairs = ((self.outcomes.good, "good"), (self.outcomes.bad, "bad"))
        said += [f"{share} {word} steps ended well" for share, word in pairs if share.of]
        return f"{self.kind[:WIDTH]}: {', '.join(said)}"

    def fault(self, z: float) -> str | None:
        """The fault that is certain at this normal quantile; None if there is none."""
        right, outcomes = self.calibration.right, self.outcomes
        if right.of and wilson_interval(right.count, right.of, z=z).high < LEAST_RIGHT:
            return f"the judge agreed with people's feedback on `{self.kind[:WIDTH]}` in only {right} votes"
        if outcomes.difference(z).high < 0:
            return (
                f"requests end well less often after `{self.kind[:WIDTH]}` if the judge calls it good"
                f" ({outcomes.good}) than if it calls it bad ({outcomes.bad})"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """One judge, over its newest turns."""

    turns: int
    rewards: Agreement
    hints: Agreement
    """Whether votes agree that there is a hint."""
    invalid: Share
    calibration: Calibration
    outcomes: Outcomes
    kinds: tuple[OfKind, ...] = ()
    """Of each kind of call with a result, the least right first; () if there is one kind alone."""
    unrated: tuple[str, ...] = ()
    """Kinds of calls of which no turn was rated, the most frequent first."""
    unable: str | None = None
    """Why it cannot judge at all, in sentences; None: it can, or it was not examined."""
    how: str | None = None
    """How it judges, and how well, in words; None: it was not examined."""

    @property
    def shares(self) -> dict[str, float]:
        """The checks that have a result, as numbers between 0 and 1: for metrics."""
        found = {
            "rewards_agree": self.rewards.share,
            "hints_agree": self.hints.share,
            "invalid": self.invalid.share,
            "right": self.calibration.right.share,
        }
        return {name: value for name, value in found.items() if value is not None}


def judge_report(
    judged: Sequence[Judged], *, unable: str | None = None, how: str | None = None
) -> JudgeReport:
    """From the newest judged turns, in any order."""
    votes = [value for each in judged for _, value in each.votes]
    return JudgeReport(
        turns=len(judged),
        rewards=agreement(each.values(Question.EVALUATION) for each in judged),
        hints=agreement(each.values(Question.HINT) for each in judged),
        invalid=Share(count=votes.count(None), of=len(votes)),
        calibration=Calibration.of(judged),
        outcomes=Outcomes.of(judged),
        kinds=_by_kind(judged),
        unrated=_unrated(judged),
        unable=unable,
        how=how,
    )


def _by_kind(judged: Sequence[Judged]) -> tuple[OfKind, ...]:
    counted = Counter(each.kind for each in judged)
    if len(counted) < 2:
        return ()
    found = (
        OfKind(
            kind=kind,
            calibration=Calibration.of(each for each in judged if each.kind == kind),
            outcomes=Outcomes.of(judged, kind=kind),
        )
        for kind, _ in counted.most_common(KINDS)
    )
    known = (each for each in found if each.known)
    return tuple(
        sorted(
            known,
            key=lambda each: (each.calibration.right.interval.high, each.outcomes.difference().high),
        )
    )


def _unrated(judged: Sequence[Judged]) -> tuple[str, ...]:
    rated = {each.kind for each in judged if each.feedback is not None}
    counted = Counter(each.kind for each in judged if each.kind not in rated)
    return tuple(kind for kind, _ in counted.most_common(KINDS))


def warnings(report: JudgeReport) -> Iterator[str]:
    """A sentence for each fault that is certain, with its remedy."""
    if report.unable is not None:
        yield report.unable
    for found, what in ((report.rewards, "rewards"), (report.hints, "hints")):
        if found.is_doubtful(FEWEST_TURNS):
            yield (
                f"the judge's votes on {what} differ as if {found.wrong:.0%} of its answers were wrong: use a"
                " better judge (judge.url), or lower judge.temperature"
            )
    if report.invalid.of >= FEWEST_TURNS and report.invalid.count > MOST_INVALID * report.invalid.of:
        yield "more than half of the judge's votes are invalid: `afterwit show` has the reason of each"
    right, outcomes = report.calibration.right, report.outcomes
    if right.interval.high < LEAST_RIGHT:
        yield f"the judge agreed with people's feedback in only {right} turns: use a better judge"
    if outcomes.difference().high < 0:
        yield (
            f"requests end well less often after steps that the judge calls good ({outcomes.good}) than after"
            f" those it calls bad ({outcomes.bad}): use a better judge"
        )
    z = NormalDist().inv_cdf(1 - 0.025 / max(1, len(report.kinds)))  # of many kinds one seems wrong by chance
    for fault in (each.fault(z) for each in report.kinds):
        if fault is not None:
            yield f"{fault}: use a better judge, or `afterwit review` such turns (learner.review = 'all')"


def findings(report: JudgeReport) -> Iterator[tuple[str, str]]:
    """Each check's name and its result in words."""
    right, kind = report.calibration.right, report.calibration.too_kind
    praised = f"; it praised {kind.count} of {kind.of} bad ones" if kind.of else ""
    yield "can judge", report.unable or report.how or UNTESTED[report.invalid.of > 0]
    yield "turns", f"{report.turns} judged, the newest"
    yield "votes on rewards", str(report.rewards)
    yield "votes on hints", str(report.hints)
    yield "invalid votes", report.invalid.described("no votes yet")
    yield (
        "agrees with feedback",
        right.described("unchecked: no thumb was compared with its verdicts; rate some responses") + praised,
    )
    yield "ends well after good steps", report.outcomes.good.described("no such step yet")
    yield "ends well after bad steps", report.outcomes.bad.described("no such step yet")
    yield "by kind of call", "; ".join(map(str, report.kinds[:SHOWN])) or "nothing to compare yet"
    if right.of and report.unrated:
        named = ", ".join(f"`{kind[:WIDTH]}`" for kind in report.unrated[:SHOWN])
        yield "unchecked", f"no thumbs on {named}: no check reveals a judge that is wrong there alone"
