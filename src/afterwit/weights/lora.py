"""A LoRA adapter in PEFT's own format, and the weights it makes: W + (alpha / r) B A.

Hu et al. 2021, arXiv:2106.09685, section 4.1. Axes: R the rank, I and O a layer's inputs and outputs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What PEFT puts before the names of the model's modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """What an adapter's configuration says of its size."""

    rank: int
    alpha: float

    @property
    def scale(self) -> float:
        """What B A is multiplied with."""
        return self.alpha / self.rank


class Pair(NamedTuple):
    """One layer's two factors."""

    a_RI: Tensor
    b_OR: Tensor


def lora_of(folder: Path) -> Lora | None:
    """The adapter of a folder; None where it holds none. ValueError where its configuration is damaged."""
    path = folder / CONFIG
    if not path.exists():
        return None
    try:
        config = json.loads(path.read_text())
        return Lora(rank=int(config["r"]), alpha=float(config["lora_alpha"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no adapter's configuration: {error}") from error


def pairs_of(folder: Path) -> dict[str, Pair]:
    """The factors by the module they belong to. ValueError where one is missing or belongs to nothing."""
    tensors = {name.removeprefix(PREFIX): tensor for name, tensor in load_file(folder / TENSORS).items()}
    modules = sorted({name.rpartition(".lora_")[0] for name in tensors})
    try:
        pairs = {
            name: Pair(tensors.pop(f"{name}.lora_A.weight"), tensors.pop(f"{name}.lora_B.weight"))
            for name in modules
        }
    except KeyError as error:
        raise ValueError(f"{folder / TENSORS} has no {error}") from error
    if tensors:
        raise ValueError(f"{folder / TENSORS} has {sorted(tensors)[:3]}, which are no factors of a layer")
    return pairs


@torch.no_grad()
def merged(model: nn.Module, pairs: dict[str, Pair], scale: float) -> dict[str, nn.Parameter]:
    """The model's weights that the adapter moves, by name and anew: its own stay as they are.

    Added up in fp32 (fp64 for fp64 weights), then rounded to the weight's dtype: in half precision a small
    step may not show yet, as it would not beside the weights, where the layer's output is rounded. ValueError where a layer is
    missing, ValueError or RuntimeError where its shape is another.
    """
    modules, found = dict(model.named_modules()), {}
    for name, pair in pairs.items():
        if not isinstance(layer := modules.get(name), nn.Linear | Conv1D):
            raise ValueError(f"the model has no linear layer {name}")
        weight: Tensor = layer.weight
        exact = torch.promote_types(weight.dtype, torch.float32)
        a_RI, b_OR = (factor.to(weight.device, exact) for factor in pair)
        delta = scale * (b_OR @ a_RI)
        delta = delta.t() if isinstance(layer, Conv1D) else delta
        if delta.shape != weight.shape:
            raise ValueError(f"{name} is {tuple(weight.shape)}, but its adapter {tuple(delta.shape)}")
        moved = (weight.to(exact) + delta).to(weight.dtype)
        found[f"{name}.weight"] = nn.Parameter(moved, requires_grad=False)
    return found
