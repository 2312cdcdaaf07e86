"""What was measured of a judge at a cost, as the store keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

import orjson

from afterwit.core.judge_checks import HintLift, JudgeReport
from afterwit.store import Store

NOTE = "judge"
KEPT = 200
"""Hints that are remembered, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of one judge: another one begins anew."""

    judge: str
    """Who it is: its name and where it is, or the model."""
    probes: tuple[tuple[int | None, int | None], ...] = ()
    """The votes on each probe and its twin; (): it was not probed."""
    lifts: tuple[HintLift, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    """What the last report said, in numbers, by check."""

    @classmethod
    def of(cls, store: Store) -> Self | None:
        """What the store keeps; None: nothing yet."""
        text = store.note(NOTE)
        if text is None:
            return None
        data = orjson.loads(text)
        return cls(
            judge=data["judge"],
            probes=tuple((plain, flattered) for plain, flattered in data["probes"]),
            lifts=tuple(HintLift(**each) for each in data["lifts"]),
            shares=data["shares"],
        )

    def keep(self, store: Store) -> None:
        """Write it over what was kept before."""
        store.set_note(NOTE, orjson.dumps(asdict(self) | {"lifts": self.lifts[-KEPT:]}).decode())


def shares_of(report: JudgeReport) -> dict[str, float]:
    """What is known, in numbers between 0 and 1: for metrics."""
    found = {
        "rewards_agree": report.rewards.share,
        "hints_agree": report.hints.share,
        "invalid": report.invalid.share,
        "right": report.calibration.right.share,
        "hints_help": None if report.lifts is None else report.lifts.wins.share,
        "swayed": None if report.probed is None else report.probed.swayed.share,
    }
    return {name: value for name, value in found.items() if value is not None}
