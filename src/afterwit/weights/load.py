"""Loads a Hugging Face model folder through transformers. Python code in the folder never runs.

Weights are copied into memory, never mapped from a file: writing to the file while it is served would change
the answers of a version, or end the process.
"""

from __future__ import annotations

import json
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from afterwit.errors import SettingError

KINDS_OF_MISFIT = ("missing", "unexpected", "mismatched")


def read_config(folder: Path) -> PreTrainedConfig:
    """The folder's configuration. SettingError if transformers cannot read it by itself."""
    path = folder / "config.json"
    if not path.is_file():
        raise SettingError(f"{folder} has no config.json: the model must be a Hugging Face folder.")
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (ValueError, OSError, KeyError) as error:
        raise SettingError(own_code(folder) or f"transformers cannot read {path}: {error}") from error


def width_of(config: PreTrainedConfig) -> int:
    width: int = config.get_text_config().hidden_size
    return width


def load_causal_lm(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The folder's causal language model on the CPU. SettingError if it cannot be loaded whole."""
    logging.disable_progress_bar()
    read_config(folder)
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except UnpicklingError as error:
        raise SettingError(
            f"transformers cannot load {folder}: its weights are a pickle of more than tensors, which is "
            "not run; take them as *.safetensors"
        ) from error
    except (ValueError, OSError, KeyError, RuntimeError, SafetensorError) as error:
        raise SettingError(own_code(folder) or f"transformers cannot load {folder}: {error}") from error
    misfits = {kind: sorted(map(str, report[f"{kind}_keys"]))[:3] for kind in KINDS_OF_MISFIT}
    if wrong := "; ".join(f"{kind}: {names}" for kind, names in misfits.items() if names):
        raise SettingError(f"The weights in {folder} are not those of its config.json ({wrong}).")
    loaded: PreTrainedModel = model
    for tensor in (*loaded.parameters(), *loaded.buffers()):
        if not tensor.untyped_storage().resizable():  # mapped from the file
            tensor.data = tensor.data.clone()
    return loaded


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a file, by name. Raises SafetensorError and OSError."""
    found: dict[str, Tensor] = load(path.read_bytes())
    return found


def own_code(folder: Path) -> str | None:
    """A sentence if the folder's model needs Python code of its own; else None."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict) or not config.get("auto_map"):
        return None
    return (
        f"the model in {folder} needs Python code of its own (auto_map in config.json), which Afterwit does "
        "not run: take a model that transformers knows by itself (Qwen3, Llama, Qwen2, SmolLM, ...)"
    )
