"""`python -m experiments.safety.canary`: the benefit and the cost of a canary.

A canary serves a new version to a share of the requests until the watch has seen enough. Requests come
evenly; half of those that a bad version serves end badly, a twentieth of the others; a request's end is known
`DELAY_H` hours later. The watch is the one that serves, and it sees the new version's requests alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from statistics import fmean

from afterwit.promotion.suite import PromotionSettings, ongoing_evidence

BAD, USUAL = 0.5, 0.05
"""Share of requests that end badly under a bad version, and under the one before."""
DELAY_H = 0.25
"""Hours from a request to the words that say how it ended, and to the verdict on them."""
RUNS = 200
A_DAY = (5, 50, 200, 2000, 20_000)
SHARES = (1.0, 0.1)
"""All requests at once, as it is; and a tenth first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The fate of a bad version, and of a good one."""

    hours: float
    """Until the bad version is taken back."""
    harmed: float
    """Requests that ended badly by then and would not have."""
    wait_h: float
    """Until a good version that needs `confirm_after` good requests serves everybody."""


def to_alarm(watch: PromotionSettings, share: float = BAD) -> float:
    """The mean number of requests until the watch's alarm, if this share ends badly."""
    return fmean(_until(watch, share, Random(seed)) for seed in range(RUNS))


def _until(watch: PromotionSettings, share: float, rng: Random) -> int:
    outcomes = (rng.random() < share for _ in iter(int, 1))
    values = ongoing_evidence(outcomes, bound=watch.may_end_badly)
    return next(at for at, value in enumerate(values, start=1) if value >= watch.alarm_at)


def outcome(watch: PromotionSettings, requests: float, *, a_day: float, share: float) -> Outcome:
    """With an alarm after `requests` requests to the new version, which serves this share of all."""
    an_hour = share * a_day / 24
    hours = requests / an_hour + DELAY_H
    return Outcome(
        hours=hours,
        harmed=hours * an_hour * (BAD - USUAL),
        wait_h=0.0 if share == 1.0 else watch.confirm_after / an_hour + DELAY_H,
    )


def table(watch: PromotionSettings) -> str:
    """A row for each number of requests a day."""
    requests = to_alarm(watch)
    head = "| requests a day | taken back after | with a canary | harmed | with it | a good version waits |\n"
    return (
        head
        + "| --- " * 6
        + "|\n"
        + "".join(
            f"| {a_day:,} | {_said(everybody.hours)} | {_said(canary.hours)} | {everybody.harmed:.0f} |"
            f" {canary.harmed:.0f} | {_said(canary.wait_h)} |\n"
            for a_day in A_DAY
            for everybody, canary in [
                tuple(outcome(watch, requests, a_day=a_day, share=share) for share in SHARES)
            ]
        )
    )


def _said(hours: float) -> str:
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.1f} hours"


if __name__ == "__main__":
    print(table(PromotionSettings()))
