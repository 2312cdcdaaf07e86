"""Checks of a judge by its votes, people's feedback, and how requests end. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from afterwit.judging.voting import reward
from afterwit.progress import Interval, difference_interval, wilson_interval
from afterwit.verdict import Question, Source

FEWEST_TURNS = 30
"""Turns needed before votes that differ count as evidence."""
MOST_WRONG = 0.2
"""Share of wrong answers that would make votes differ as often as they do."""
LEAST_RIGHT = 0.8
"""Share of right answers. A judge is surely below it if its whole interval is."""
MOST_INVALID = 0.5


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
        if self.share is None:
            return None
        return (1 - math.sqrt(max(0.0, 2 * self.share - 1))) / 2


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
    too_kind: Share
    """Of the turns with feedback -1: those that it called good."""


def calibration(judged: Iterable[Judged]) -> Calibration:
    """How often the judge agreed with people. A vote of 0 is wrong: the person had an opinion."""
    pairs = [
        (each.feedback, vote) for each in judged if each.feedback for vote in each.values(Question.BLIND)
    ]
    bad = [vote for feedback, vote in pairs if feedback == -1]
    return Calibration(
        right=Share(count=sum(feedback == vote for feedback, vote in pairs), of=len(pairs)),
        too_kind=Share(count=bad.count(1), of=len(bad)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """How requests ended, by the votes on the steps before their ends."""

    good: Share
    """Of the steps called good: those whose request ended well."""
    bad: Share
    """Of the steps called bad."""

    @property
    def difference(self) -> Interval:
        """Of the share of good steps minus that of bad ones."""
        return difference_interval((self.bad.count, self.bad.of), (self.good.count, self.good.of))


def outcomes(judged: Sequence[Judged]) -> Outcomes:
    """How the requests ended whose steps votes called good or bad. The turns that ended them are left out:
    their votes have read the end."""
    ends: dict[int, list[bool]] = {1: [], -1: []}
    waiting: defaultdict[str, list[Judged]] = defaultdict(list)
    for each in sorted(judged, key=lambda each: each.seq):
        if each.ended_well is None:
            waiting[each.session].append(each)
            continue
        for step in waiting.pop(each.session, ()):
            if step.source is Source.VOTES and (vote := reward(step.values(Question.EVALUATION))):
                ends[vote].append(each.ended_well)
    good, bad = (Share(count=sum(ends[vote]), of=len(ends[vote])) for vote in (1, -1))
    return Outcomes(good=good, bad=bad)


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
    unable: str | None = None
    """Why it cannot judge at all, in sentences; None: it can, or it was not examined."""


def judge_report(judged: Sequence[Judged], *, unable: str | None = None) -> JudgeReport:
    """From the newest judged turns, in any order."""
    votes = [value for each in judged for _, value in each.votes]
    return JudgeReport(
        turns=len(judged),
        rewards=agreement(each.values(Question.EVALUATION) for each in judged),
        hints=agreement(each.values(Question.HINT) for each in judged),
        invalid=Share(count=votes.count(None), of=len(votes)),
        calibration=calibration(judged),
        outcomes=outcomes(judged),
        unable=unable,
    )


def shares_of(report: JudgeReport) -> dict[str, float]:
    """The checks that have a result, as numbers between 0 and 1: for metrics."""
    found = {
        "rewards_agree": report.rewards.share,
        "hints_agree": report.hints.share,
        "invalid": report.invalid.share,
        "right": report.calibration.right.share,
    }
    return {name: value for name, value in found.items() if value is not None}


def warnings(report: JudgeReport) -> Iterator[str]:
    """A sentence for each fault that is certain, with its remedy."""
    if report.unable is not None:
        yield report.unable
    for found, what in ((report.rewards, "rewards"), (report.hints, "hints")):
        if found.turns >= FEWEST_TURNS and found.wrong is not None and found.wrong > MOST_WRONG:
            yield (
                f"the judge's votes on {what} differ as if {found.wrong:.0%} of its answers were wrong: use a"
                " better judge (judge.url), or lower judge.temperature"
            )
    if report.invalid.of >= FEWEST_TURNS and report.invalid.count > MOST_INVALID * report.invalid.of:
        yield "more than half of the judge's votes are invalid: `afterwit show` tells why"
    right = report.calibration.right
    if right.interval.high < LEAST_RIGHT:
        yield f"the judge agreed with people's feedback in only {_of(right)} turns: use a better judge"
    if report.outcomes.difference.high < 0:
        good, bad = report.outcomes.good, report.outcomes.bad
        yield (
            f"requests end well less often after steps that the judge calls good ({_of(good)}) than after"
            f" those it calls bad ({_of(bad)}): use a better judge"
        )


def findings(report: JudgeReport) -> Iterator[tuple[str, str]]:
    """Each check's name and its result in words."""
    yield "can judge", "yes, or not known yet" if report.unable is None else report.unable
    yield "turns", f"{report.turns} judged, the newest"
    yield "votes on rewards", _agreement(report.rewards)
    yield "votes on hints", _agreement(report.hints)
    yield "invalid votes", _share(report.invalid, "no votes yet")
    agrees = _share(report.calibration.right, "no turn with explicit feedback has been judged yet")
    kind = report.calibration.too_kind
    praised = f"; it praised {kind.count} of {kind.of} bad ones" if kind.of else ""
    yield "agrees with feedback", agrees + praised
    yield "ends well after good steps", _share(report.outcomes.good, "no such step yet")
    yield "ends well after bad steps", _share(report.outcomes.bad, "no such step yet")


def _agreement(found: Agreement) -> str:
    if found.share is None or found.wrong is None:
        return "nothing to compare: it needs two votes on a turn"
    return (
        f"{found.share:.0%} of pairs on a turn agree, as if {found.wrong:.0%} of answers were wrong"
        f" ({found.turns} turns)"
    )


def _share(found: Share, none: str) -> str:
    if not found.of:
        return none
    return f"{_of(found)} ({found.interval.low:.0%} to {found.interval.high:.0%})"


def _of(share: Share) -> str:
    return f"{share.count} of {share.of}"
