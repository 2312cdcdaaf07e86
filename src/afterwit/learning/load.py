"""From a Hugging Face model folder to a module that computes as in evaluation: without dropout."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from afterwit.errors import SettingError, VersionDamaged
from afterwit.weights.load import load_causal_lm

REMEDY = "`afterwit rollback` returns to a version before it"


def load_model(folder: Path, *, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The folder's causal language model in `dtype`. SettingError if transformers cannot load it."""
    model = load_causal_lm(folder, dtype)
    without_dropout(model)
    return model.to(device).eval()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a version's file, by name. VersionDamaged if it cannot be read."""
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise VersionDamaged(f"{path} cannot be read ({error}): {REMEDY}") from error
    return tensors


def recompute_activations(model: PreTrainedModel) -> None:
    """Save the memory of activations by a second forward pass. Values and gradients stay the same."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()


def device_of(name: str) -> torch.device:
    """The device that a setting names; `auto` is CUDA if there is one. SettingError if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingError(
            f"learner.device is {name!r}, which torch does not know: try auto, cpu or cuda"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingError(
            "learner.device is cuda, but torch sees no CUDA device here: set it to auto or cpu"
        )
    return device


def without_dropout(model: nn.Module) -> None:
    """Let the model compute in training as in evaluation."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 - not every module declares it
