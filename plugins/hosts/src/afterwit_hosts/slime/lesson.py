"""One response that trains, with all that its loss reads, as it travels to slime's training processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from afterwit.api.learning import Item, served_sample
from afterwit.api.objective import Denominators, Sample
from afterwit.api.serving import Scored
from afterwit.api.settings import ObjectiveSettings, Settings, load
from afterwit_hosts.slime.requirements import require_settings

UNLESS_SAID = {"learner": {"lora_rank": 0, "replay": 0, "teacher": "server"}, "objective": {"beta": 0.0}}
"""Settings of a home that slime trains, overridden by its own `config.toml` and the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Values shared by all lessons of an update."""

    home: Path
    base: Path
    turns: tuple[str, ...]
    objective: ObjectiveSettings
    over: Denominators
    vocabulary: int
    """Ids that the model knows; logits beyond are padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One response that trains."""

    item: Item
    advantage: float | None
    """None: no RL term."""
    scores: tuple[Scored, ...]
    """The teacher's scores after each hint."""
    batch: Batch

    def sample(self, like: Tensor) -> Sample:
        """As the objective sees it, where `like` lies."""
        k = self.batch.objective.ids_kept
        return served_sample(self.item, self.scores, self.advantage, like, k=k)


def settings_of(home: Path) -> Settings:
    """The home's settings. SettingError if slime cannot train by them."""
    settings = load(home=home, below=UNLESS_SAID)
    require_settings(settings.learner, settings.objective)
    return settings
