"""Settings for verl, and which of the learner's settings it supports. Does not import verl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from afterwit.api.settings import LearnerSettings
from afterwit.api.turns import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Further fields of verl's configuration."""

    model: Mapping[str, Any] = field(default_factory=dict)
    """Of `HFModelConfig`."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Of `FSDPEngineConfig`."""


def options_of(flag: str, text: str) -> Mapping[str, Any]:
    """Options in a flag's JSON. Raises SettingError unless it is an object."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SettingError(f"{flag} is {text}, which is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise SettingError(f"{flag} is {text}, but must be a JSON object")
    return found


def in_verl(settings: LearnerSettings, processes: int) -> LearnerSettings:
    """The settings of a learner in verl: each process holds a part of the model, and reads whole logits.

    SettingError if verl cannot train by them.
    """
    if settings.lora_rank:
        raise SettingError(
            f"learner.lora_rank is {settings.lora_rank}, but verl's engine trains full weights here: set it"
            " to 0, or train the adapter with `afterwit train`"
        )
    if settings.dtype == "float64":
        raise SettingError("learner.dtype is float64, which verl does not know: set float32 or bfloat16")
    if "ema" in (settings.teacher, settings.reference):
        raise SettingError("the mean of the weights is not kept under verl: set learner.teacher = 'base'")
    try:
        return replace(settings, processes=processes, shards=processes, loss_backend="plain", packing="off")
    except ValueError as error:
        raise SettingError(f"learner: {error}") from error
