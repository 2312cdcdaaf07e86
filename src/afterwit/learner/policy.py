"""The policy as the learner holds it: model, master weights, optimiser; from a version to the next."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import AdamW
from transformers import PreTrainedModel

from afterwit.core.errors import VersionDamaged
from afterwit.head.head import Head
from afterwit.learner import optimizer as adamw
from afterwit.learner.heads import fused_head
from afterwit.learner.load import device_of, load_model, recompute_activations
from afterwit.learner.masters import Masters
from afterwit.learner.settings import LearnerSettings
from afterwit.learner.versions import STATE, Versions

CONFIGURATION = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
MASTER = "master."
REWARD_MEAN = "reward_mean"
ONE_FILE = "10TB"


@dataclass(slots=True, kw_only=True)
class Policy:
    """What an update moves. `reward_mean` is the running mean of the RL baseline.

    `head` is the model's, to be fused with the loss; None: the plain way.
    """

    model: PreTrainedModel
    head: Head | None
    masters: Masters
    optimizer: AdamW
    reward_mean: float
    number: int

    @classmethod
    def load(cls, versions: Versions, number: int, settings: LearnerSettings) -> Policy:
        """The policy at a version; a version without optimiser state (the base) begins with a fresh one.

        SettingError or VersionDamaged where its files cannot be read.
        """
        folder, device = versions.weights(number), device_of(settings.device)
        tensors = _state(folder / STATE) if (folder / STATE).exists() else {}
        model = load_model(folder, dtype=getattr(torch, settings.dtype), device=device)
        if settings.checkpointing:
            recompute_activations(model)
        precise = _precise(folder, tensors, settings)
        masters = Masters(model, precise if settings.dtype == "bfloat16" else None)
        if precise is not None and not masters.separate:
            _assign(model, precise)
        optimizer = adamw.build(masters, settings)
        adamw.restore(optimizer, masters, tensors)
        reward_mean = float(tensors.get(REWARD_MEAN, torch.tensor(0.0)))
        return cls(
            model=model,
            head=fused_head(model) if settings.head == "fused" else None,
            masters=masters,
            optimizer=optimizer,
            reward_mean=reward_mean,
            number=number,
        )

    def save_state(self, folder: Path) -> None:
        """Write what the next update needs beside the model."""
        tensors = adamw.state(self.optimizer, self.masters)
        if self.masters.separate:
            tensors |= {MASTER + name: parameter.detach() for name, parameter in self.masters.named.items()}
        tensors[REWARD_MEAN] = torch.tensor(self.reward_mean, dtype=torch.float64)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / STATE)


def write_model(model: PreTrainedModel, folder: Path, base: Path) -> None:
    """Write an ordinary Hugging Face folder: the model's weights, configured as the base is."""
    model.save_pretrained(folder, max_shard_size=ONE_FILE)
    for pattern in CONFIGURATION:
        for path in base.glob(pattern):
            if not path.name.endswith(".index.json"):
                shutil.copyfile(path, folder / path.name)


def _state(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise VersionDamaged(
            f"{path} cannot be read ({error}): `afterwit rollback` returns to a version before it"
        ) from error
    return tensors


def _precise(folder: Path, tensors: dict[str, Tensor], settings: LearnerSettings) -> dict[str, Tensor] | None:
    """Values of the master weights where the folder's model is, or is to be, rounded."""
    kept = {name.removeprefix(MASTER): tensor for name, tensor in tensors.items() if name.startswith(MASTER)}
    if kept or settings.dtype != "bfloat16":
        return kept or None
    whole = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
    return {name: parameter.detach() for name, parameter in whole.named_parameters()}


@torch.no_grad()
def _assign(model: PreTrainedModel, values: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(values[name])
