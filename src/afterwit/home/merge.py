"""A version for other programs: whole weights as a Hugging Face folder or in GGUF, or an adapter in GGUF."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError

from afterwit.checkpoints.manifest import MODEL
from afterwit.checkpoints.manifest import NAME as MANIFEST
from afterwit.checkpoints.versions import Versions
from afterwit.errors import SettingError
from afterwit.gguf.write import KINDS, described, write_adapter, write_model
from afterwit.home.drafts import draft_beside
from afterwit.learning.models import copy_configuration
from afterwit.weights.adapter import lora_of
from afterwit.weights.weights import load_causal_lm, merged, pairs_of, read_config


def write_merged(versions: Versions, number: int, out: Path, gguf: str | None = None) -> None:
    """Write version `number` into the new folder `out`, in the precision of the base, whole or not at all.

    `gguf` is the kind of the file that `out` becomes instead. SettingError if its weights are the base's or
    were deleted, or if `out` is not empty; VersionDamaged if a file is not as it was written.
    """
    if gguf not in (None, *KINDS):
        raise SettingError(f"--gguf {gguf}: it must be one of {', '.join(KINDS)}")
    with _writing(versions, number, out) as (folder, draft):
        if gguf is not None:
            described(versions.base)  # refused before it is merged
        _write(versions.base, folder, draft)
        if gguf is None:
            draft.rename(out)
            return
        write_model(draft, draft / out.name, gguf, name=f"{out.stem}, version {number}")
        (draft / out.name).rename(out)


def write_gguf_adapter(versions: Versions, number: int, out: Path) -> None:
    """Write the adapter of version `number` as a file of llama.cpp's. Raises as `write_merged`."""
    with _writing(versions, number, out) as (folder, draft):
        if lora_of(folder) is None:
            raise SettingError(
                f"version {number} has whole weights, no adapter: `afterwit merge --gguf` writes it"
            )
        write_adapter(versions.base, folder, draft / out.name, name=f"{out.stem}, version {number}")
        (draft / out.name).rename(out)


@contextmanager
def _writing(versions: Versions, number: int, out: Path) -> Iterator[tuple[Path, Path]]:
    """The folder of the version's weights, and a draft in which to write. What fails there is translated."""
    folder = versions.weights(number)
    if folder == versions.base:
        raise SettingError(f"version {number} is the original model: {versions.base}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingError(f"{out} is not empty: name another place")
    versions.verify(number)
    try:
        with draft_beside(out) as draft:
            yield folder, draft
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
