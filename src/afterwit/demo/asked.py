"""What a demo is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from afterwit.demo.people import Manner
from afterwit.demo.settings import Chosen, choose
from afterwit.demo.worlds import world_named
from afterwit.errors import SettingError

MEASURED = (12, 36, 96, 200, 350, 500)
"""Interactions after which the policy is measured, beside the start and the end."""


REAL_DEFAULTS_MEASURED = (20, 50, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A demo's choices as the flags say them; None leaves one to the recipe or to the demo's own settings.

    SettingError for people who are not there, and for less than one interaction.
    """

    world: str
    interactions: int
    seed: int
    out: Path
    objective: str | None = None
    recipe: str | None = None
    judge: str | None = None
    people: str = Manner.FULL
    engine: str | None = None
    engine_url: str | None = None
    pairs: Sequence[str] = ()
    """Settings as `--set` takes them."""
    real_defaults: bool = False
    measured: Sequence[int] = ()
    """Interactions after which the policy is measured; empty: those of the demo."""

    def __post_init__(self) -> None:
        if self.people not in list(Manner):
            raise SettingError(f"--people {self.people}: it must be one of {', '.join(Manner)}")
        if self.interactions < 1:
            raise SettingError(f"--interactions {self.interactions}: at least one is needed")

    @property
    def home(self) -> Path:
        return self.out / "home"

    @property
    def measured_after(self) -> Sequence[int]:
        return self.measured or (REAL_DEFAULTS_MEASURED if self.real_defaults else MEASURED)

    def chosen(self) -> Chosen:
        """The settings that follow. SettingError for a choice that is not there."""
        direct = {
            "objective.objective": self.objective,
            "engine.kind": self.engine,
            "engine.url": self.engine_url,
        }
        return choose(
            world_named(self.world),
            self.home,
            judge=self.judge,
            recipe=self.recipe,
            real_defaults=self.real_defaults,
            pairs=self.pairs,
            direct=direct,
        )
