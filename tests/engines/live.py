"""The demo's chat world on an engine: people, gateway, judge, learner, and new versions in the engine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterwit.demo.live import Measurement, Run, live
from afterwit.demo.people import MEASURE, SEED, held_out
from afterwit.demo.settings import choose
from afterwit.demo.worlds import world_named

WORLD = world_named("chat")
MODEL = WORLD.folder / "model"
CONTEXT = 1024
"""Of that model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """The policy on tasks that it never saw, before and after; the newest version that was served."""

    before: Measurement
    after: Measurement
    version: int


def lived(home: Path, engine: Mapping[str, Any], *, people: int = 12, measured_on: int = 30) -> Lived:
    """Let `people` people teach the model on an engine, with its base weights as the judge."""
    settings = choose(WORLD, home, direct={f"engine.{name}": value for name, value in engine.items()})
    with live(settings.settings, home, rules=None) as system:
        run = Run(
            system=system,
            world=WORLD,
            held_out=held_out(WORLD, MEASURE, measured_on, SEED),
            seed=0,
            measured=(),
            began=time.monotonic(),
        )
        for _ in run.play(people):
            pass
        return Lived(before=run.points[0], after=run.points[-1], version=system.version())
