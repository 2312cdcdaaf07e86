"""A version as an ordinary Hugging Face folder: whole weights, without this program's own files."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError

from afterwit.checkpoints.manifest import MODEL
from afterwit.checkpoints.manifest import NAME as MANIFEST
from afterwit.checkpoints.versions import Versions
from afterwit.errors import SettingError
from afterwit.home.drafts import draft_beside
from afterwit.learning.models import copy_configuration
from afterwit.weights.load import load_causal_lm, read_config
from afterwit.weights.lora import lora_of, merged, pairs_of


def write_merged(versions: Versions, number: int, out: Path) -> None:
    """Write version `number` into the new folder `out`, in the precision of the base, whole or not at all.

    SettingError if its weights are the base's or were deleted, or if `out` is not empty; VersionDamaged if a
    file is not as it was written.
    """
    folder = versions.weights(number)
    if folder == versions.base:
        raise SettingError(f"version {number} is the model as it came: {versions.base}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingError(f"{out} is not empty: name another folder")
    versions.verify(number)
    try:
        with draft_beside(out) as draft:
            _write(versions.base, folder, draft)
            draft.rename(out)
    except (OSError, SafetensorError) as error:
        if not versions.has_weights(number):  # as by `forget`
            message = (
                f"the weights of version {number} were removed while they were read: name another version"
            )
            raise SettingError(message) from error
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise SettingError(f"{out} cannot be written: {why}") from error


@torch.no_grad()
def _write(base: Path, folder: Path, draft: Path) -> None:
    lora = lora_of(folder)
    if lora is None:
        shutil.copyfile(folder / MODEL, draft / MODEL)
        copy_configuration(draft, folder, without=(MANIFEST,))
        return
    model = load_causal_lm(base, read_config(base).dtype or torch.float32)
    for name, weight in merged(model, pairs_of(folder), lora.scale).items():
        model.get_parameter(name).copy_(weight)
    model.save_pretrained(draft)
    copy_configuration(draft, base)
