"""What the store knows of the judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from afterwit.core.judge_checks import (
    JudgeReport,
    Share,
    hint_lifts,
    judge_report,
    probed,
)
from afterwit.stages.judge.ability import fault_of
from afterwit.stages.judge_checks.measured import Measured
from afterwit.store import Store

NEWEST = 2000
"""Judged turns that are looked at."""


def report_of(store: Store) -> JudgeReport:
    """Over the newest judged turns."""
    kept = Measured.of(store)
    return judge_report(
        store.judged_turns(limit=NEWEST),
        lifts=hint_lifts(kept.lifts) if kept is not None and kept.lifts else None,
        probed=probed(kept.probes) if kept is not None and kept.probes else None,
        unable=fault_of(store),
    )


def judge_shares(store: Store) -> Mapping[str, float]:
    """What the last check said in numbers between 0 and 1, by check; empty before the first."""
    kept = Measured.of(store)
    return {} if kept is None else kept.shares


def known_of_judge(report: JudgeReport) -> Iterator[tuple[str, str]]:
    """Each check's name, and what it found in words."""
    yield "can judge", "yes, or not known yet" if report.unable is None else report.unable
    yield "turns", f"{report.turns} judged, the newest"
    for name, found in (("rewards", report.rewards), ("hints", report.hints)):
        yield f"votes on {name}", _agreement(found.share, found.wrong, found.turns)
    yield "invalid votes", _share(report.invalid, "no votes yet")
    calibration = report.calibration
    said = _share(calibration.right, "no turn with explicit feedback has been judged yet")
    kind = calibration.too_kind
    yield (
        "says what feedback says",
        said + (f"; it praised {kind.count} of {kind.of} bad ones" if kind.of else ""),
    )
    yield "ends well after good steps", _share(report.outcomes.good, "no such step yet")
    yield "ends well after bad steps", _share(report.outcomes.bad, "no such step yet")
    if report.lifts is None:
        yield "hints help", "not measured yet: it needs complaints whose redone answer was accepted"
    else:
        mean = report.lifts.mean or 0.0
        yield "hints help", f"{_share(report.lifts.wins, '')}, by {mean:+.3f} nats a token on average"
    if report.probed is None:
        yield "swayed by flattery", "not probed yet: `afterwit serve` does so once"
    else:
        right = report.probed.right
        yield (
            "swayed by flattery",
            f"{_share(report.probed.swayed, 'unknown')}; it sees {right.count} of {right.of} plain failures",
        )


def _agreement(share: float | None, wrong: float | None, turns: int) -> str:
    if share is None or wrong is None:
        return "nothing to compare: it needs two votes on a turn"
    return f"{share:.0%} of pairs on a turn agree, as if {wrong:.0%} of answers were wrong ({turns} turns)"


def _share(found: Share, none: str) -> str:
    if found.share is None:
        return none
    low, high = found.interval.low, found.interval.high
    return f"{found.count} of {found.of} ({low:.0%} to {high:.0%})"
