"""Requirements under which slime's step is the objective's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from afterwit.api.learning import require_servable
from afterwit.api.settings import LearnerSettings, ObjectiveSettings, Settings, load
from afterwit.api.turns import SettingError

UNLESS_SAID = {"learner": {"lora_rank": 0, "replay": 0, "teacher": "server"}, "objective": {"beta": 0.0}}
"""Settings of a home that slime trains, overridden by its own `config.toml` and the environment."""

FLAGS = {
    "n_samples_per_prompt": (1, "a live turn has no siblings"),
    "context_parallel_size": (1, "a response must be whole on a rank"),
    "calculate_per_token_loss": (False, "the mean over a response's tokens comes first"),
    "loss_type": ("custom_loss", "the loss is the plugin's"),
    "update_weight_mode": ("full", "a version holds whole weights"),
    "update_weight_transport": ("disk", "versions are made of what slime writes"),
}
"""slime's arguments by name: the only value that fits, and why."""


def require_flags(args: Any) -> None:
    """SettingError, with the flag, if one of slime's arguments does not fit. What it lacks fits."""
    for name, (wanted, why) in FLAGS.items():
        if (found := getattr(args, name, wanted)) != wanted:
            raise SettingError(f"slime's {name} is {found!r}, but must be {wanted!r}: {why}")
    size, whole = (getattr(args, name, None) for name in ("rollout_batch_size", "global_batch_size"))
    if size != whole:
        raise SettingError(
            f"slime's rollout_batch_size is {size} and its global_batch_size {whole}, but one batch of turns"
            " is one step: make them equal"
        )


def settings_of(home: Path) -> Settings:
    """The home's settings. SettingError if slime cannot train by them."""
    settings = load(home=home, below=UNLESS_SAID)
    require_settings(settings.learner, settings.objective)
    return settings


def require_settings(learner: LearnerSettings, objective: ObjectiveSettings) -> None:
    """SettingError if the home's settings ask for what slime's step cannot give."""
    asked = {
        "learner.lora_rank": (learner.lora_rank, 0, "slime trains full weights"),
        "learner.epochs": (learner.epochs, 1, "slime steps once over a batch"),
        "learner.replay": (learner.replay, 0, "a batch has new turns alone"),
        "objective.beta": (objective.beta, 0.0, "slime holds no whole distribution of the reference"),
        "objective.entropy_coef": (objective.entropy_coef, 0.0, "the entropy is not computed"),
    }
    for name, (found, wanted, why) in asked.items():
        if found != wanted:
            raise SettingError(f"{name} is {found}, but under slime {why}: set it to {wanted}")
    if objective.baseline == "running":
        raise SettingError(
            "objective.baseline is 'running', whose mean is not kept under slime: set it to 'none'"
        )
    if objective.needs_teacher and learner.teacher != "server":
        raise SettingError(
            f"learner.teacher is {learner.teacher!r}, but under slime hints are scored by a server: set it to"
            " 'server', and learner.teacher_url"
        )
    require_servable(objective)
