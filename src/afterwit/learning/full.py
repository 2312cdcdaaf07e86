"""Full weights: every parameter of the model trains, and a version is an ordinary Hugging Face folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learning.load import device_of, load_model
from afterwit.learning.optimizer import Masters
from afterwit.learning.settings import LearnerSettings

CONFIGURATION = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")


ONE_FILE = "10TB"


@dataclass(frozen=True, slots=True, kw_only=True)
class FullWeights:
    """Implements `policy.Trained`."""

    model: PreTrainedModel
    masters: Masters
    base: None = None

    @classmethod
    def load(cls, folder: Path, precise: Mapping[str, Tensor], settings: LearnerSettings) -> Self:
        """The model in a folder. `precise`: the values its weights were rounded from, if kept."""
        rounds = settings.dtype == "bfloat16"
        model = load_model(folder, dtype=getattr(torch, settings.dtype), device=device_of(settings.device))
        if precise and not rounds:
            _assign(model, precise)
        return cls(model=model, masters=Masters(model, (precise or _precise(folder)) if rounds else None))

    def initial_masters(self, base: Path) -> dict[str, Tensor]:
        """The master weights at the base, as a copy for the caller."""
        return {name: tensor.to(self.masters.named[name]) for name, tensor in _precise(base).items()}

    def write(self, folder: Path, base: Path) -> None:
        """Write the model with the base's tokenizer, templates and configuration."""
        self.model.save_pretrained(folder, max_shard_size=ONE_FILE)
        copy_configuration(folder, base)


def copy_configuration(folder: Path, base: Path, *, without: tuple[str, ...] = ()) -> None:
    """Copy the base's tokenizer, templates and configuration."""
    for pattern in CONFIGURATION:
        for path in base.glob(pattern):
            if not path.name.endswith(".index.json") and path.name not in without:
                shutil.copyfile(path, folder / path.name)


def _precise(folder: Path) -> dict[str, Tensor]:
    """The folder's weights in fp32."""
    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@torch.no_grad()
def _assign(model: PreTrainedModel, values: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(values[name])
