"""One run of an experiment as data: what is played and measured, and the result."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterwit.demo.people import MEASURE
from afterwit.demo.settings import OWN, Chosen, changed, choose
from afterwit.demo.words import Split
from afterwit.demo.worlds import world_named
from afterwit.engines.model_files import fingerprint
from experiments.simulation.manners import Manner

NOWHERE = Path("/nonexistent")
"""A home without a configuration file."""
HERE = {"learner.device": "cpu", "engine.device": "cpu", "engine.slots": 64}
"""The devices and the number of slots, in every run."""
UNGUARDED = {"promotion.enabled": False, "judge.pay_repeats": True}
"""Most runs are played without these guards: they measure the learning alone."""
REAL_DEFAULTS = Path(__file__).parents[1] / "real_defaults.toml"
"""The least that a tiny model needs besides `serve`'s own settings."""
NO_MATTER = {*HERE, "learner.threads", "learner.poll_s", "publish.poll_s"}
"""Settings that change no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The same plan gives the same run."""

    world: str
    seed: int
    name: str = ""
    """Shown in tables and progress; changes nothing."""
    judge: str | None = None
    recipe: str | None = None
    settings: tuple[str, ...] = ()
    """`section.name=value`, over the world's own settings."""
    interactions: int = 96
    measured: tuple[int, ...] = (0, 36, 96)
    """Interactions after which the policy is measured."""
    splits: tuple[Split, ...] = (MEASURE,)
    """Parts of the wordings that are measured on."""
    tasks: int = 100
    """Held-out tasks of each part."""
    publish_every: int = 1
    guarded: bool = False
    """Whether versions are held, watched and taken back, and repeated calls go unpaid."""
    people: Manner = Manner.FULL
    """How people react."""
    content: int = 0
    """Tasks at the beginning after which people say thanks, whatever was done, before they change their
    minds."""
    wrong: float = 0.0
    """Share of the judge's answers that are made wrong."""
    real_defaults: bool = False
    """Whether `settings` are over `serve`'s own, not over the world's."""

    def chosen(self) -> Chosen:
        """Its settings. SettingError for what is not there."""
        return choose(
            world_named(self.world),
            NOWHERE,
            judge=self.judge,
            recipe=self.recipe,
            own=REAL_DEFAULTS if self.real_defaults else OWN,
            pairs=self.settings,
            direct=HERE if self.guarded else HERE | UNGUARDED,
        )

    def facts(self) -> dict[str, Any]:
        """Everything that the run depends on: the settings' values, the judge, the model's fingerprint."""
        chosen = self.chosen()
        settings = changed(chosen.settings)
        left_out = NO_MATTER if self.guarded else NO_MATTER | UNGUARDED.keys()
        said = dataclasses.asdict(self) | {
            "judge": chosen.judge,
            "settings": {name: value for name, value in settings.items() if name not in left_out},
            "model": fingerprint(Path(chosen.settings.model or ""))[:12],
        }
        del said["recipe"], said["name"]
        if not self.guarded:
            del said["guarded"]
        if not self.real_defaults:
            del said["real_defaults"]
        if self.people is Manner.FULL:
            del said["people"]
        said["settings"].pop("practice.enabled", None)
        if chosen.settings.practice.enabled:
            said["practice"] = True
        for name in ("wrong", "content"):
            if not said[name]:
                del said[name]
        return json.loads(json.dumps(said, default=str))  # type: ignore[no-any-return]


def key(facts: Mapping[str, Any]) -> str:
    """A run's name: the same for the same facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement."""

    interactions: int
    split: str
    preference: float
    task_success: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that is over."""

    name: str
    """The plan's."""
    facts: Mapping[str, Any]
    points: tuple[Point, ...]
    updates: int
    holds: int = 0
    """Updates that were held back."""
    alarms: int = 0
    """How often what was learned was taken back."""
    review: Mapping[str, tuple[int, int]] | None = None
    """By whom: how many of how many judged turns contradict what several other sources approved."""
    judge_wrong: float | None = None
    """The share of wrong answers that the judge's votes on rewards show by themselves."""
    cpu_s: float
    """Seconds of processor time."""

    @property
    def measured(self) -> tuple[int, ...]:
        """After how many interactions it was measured, ascending."""
        return tuple(sorted({point.interactions for point in self.points}))

    def at(self, interactions: int, split: str) -> Point:
        """One point; LookupError if nothing was measured then."""
        for point in self.points:
            if (point.interactions, point.split) == (interactions, split):
                return point
        raise LookupError(f"nothing was measured on {split} after {interactions} interactions")

    def to_line(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str) -> RunResult:
        """The inverse of `to_line`. Raises ValueError, KeyError or TypeError for anything else."""
        data = json.loads(line)
        return cls(**data | {"points": tuple(Point(**point) for point in data["points"])})
