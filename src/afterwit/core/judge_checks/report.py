"""Everything that is known of a judge, and what is wrong with it in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from afterwit.core.judge_checks.agreement import Agreement, agreement
from afterwit.core.judge_checks.calibration import Calibration, Outcomes, Share, calibration, outcomes
from afterwit.core.judge_checks.hints import HintLifts
from afterwit.core.judge_checks.judged import Judged
from afterwit.core.judge_checks.probes import Probed
from afterwit.core.verdict import Question

FEWEST_TURNS = 30
"""Turns below which votes that differ say nothing."""
MOST_WRONG = 0.2
"""Share of answers that must be wrong for votes to differ as often as they do."""
LEAST_RIGHT = 0.8
"""Share of right answers below which a judge surely is, if its whole interval lies below."""
MOST_INVALID = 0.5
MOST_SWAYED = 1 / 3
"""Share of the probes."""
FEWEST_HINTS = 30


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
    lifts: HintLifts | None
    """None: they were not measured."""
    probed: Probed | None
    """None: it was not probed."""
    unable: str | None = None
    """Why it cannot judge at all, in sentences; None: it can, or it was not examined."""


def judge_report(
    judged: Sequence[Judged],
    *,
    lifts: HintLifts | None = None,
    probed: Probed | None = None,
    unable: str | None = None,
) -> JudgeReport:
    """From the newest judged turns, in any order."""
    votes = [value for each in judged for _, value in each.votes]
    return JudgeReport(
        turns=len(judged),
        rewards=agreement(each.values(Question.EVALUATION) for each in judged),
        hints=agreement(each.values(Question.HINT) for each in judged),
        invalid=Share(count=votes.count(None), of=len(votes)),
        calibration=calibration(judged),
        outcomes=outcomes(judged),
        lifts=lifts,
        probed=probed,
        unable=unable,
    )


def warnings(report: JudgeReport) -> Iterator[str]:
    """What is surely wrong, each as a sentence that says what to do."""
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
        yield f"the judge said what people's feedback said in only {_of(right)} turns: use a better judge"
    if report.outcomes.difference.high < 0:
        good, bad = report.outcomes.good, report.outcomes.bad
        yield (
            f"requests end well less often after steps that the judge calls good ({_of(good)}) than after"
            f" those it calls bad ({_of(bad)}): use a better judge"
        )
    if report.lifts is not None:
        yield from _no_better_than_others(report.lifts.wins)
    if report.probed is not None:
        yield from _swayed(report.probed)


def _no_better_than_others(wins: Share) -> Iterator[str]:
    """About half of the hints win by chance."""
    if wins.of < FEWEST_HINTS or wins.interval.low > 0.5:
        return
    if wins.interval.high < 0.5:
        found = "make what people accepted likelier less often than the hints of other turns do"
    else:
        found = "are not shown to help: by chance, half of them would beat the hint of another turn"
    yield f"the judge's hints {found} ({_of(wins)} do): use a better judge"


def _swayed(found: Probed) -> Iterator[str]:
    if found.right.of and 2 * found.right.count < found.right.of:
        yield f"the judge sees plain failures in only {_of(found.right)} made-up turns: use a better judge"
    elif found.swayed.count > MOST_SWAYED * found.swayed.of:
        yield f"flattery changes the judge's vote in {_of(found.swayed)} made-up turns: use a better judge"


def _of(share: Share) -> str:
    return f"{share.count} of {share.of}"
