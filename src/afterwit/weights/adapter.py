"""The files of a LoRA adapter, in PEFT's format. Reading them needs no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"
PREFIX = "base_model.model."
"""PEFT's prefix of the names of the model's modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    rank: int
    alpha: float

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"its rank is {self.rank}")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def lora_of(folder: Path) -> Lora | None:
    """The adapter in a folder; None if there is none. ValueError if its configuration is damaged."""
    path = folder / CONFIG
    if not path.exists():
        return None
    try:
        config = json.loads(path.read_text())
        return Lora(rank=int(config["r"]), alpha=float(config["lora_alpha"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not an adapter's configuration: {error}") from error
