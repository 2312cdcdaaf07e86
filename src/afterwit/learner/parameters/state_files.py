"""The learner's state in a version's folder: one file, or with shards one of each process (DCP).

Either can be read by any learner, in shards or whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor

from afterwit.checkpoints import STATE
from afterwit.learner.parameters.load import read_tensors

INDEX = ".metadata"
"""The file that DCP writes last, and reads first."""


def write_state(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write the state, with DTensors in it from all processes together."""
    if any(isinstance(tensor, DTensor) for tensor in tensors.values()):
        save(dict(tensors), checkpoint_id=folder)
    else:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / STATE)


def read_state(folder: Path, layout: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The state; {} if there is none, as in the base. VersionDamaged if it cannot be read.

    `layout`: the masters by name if they are DTensors. What belongs to one of them (`exp_avg.NAME`) is laid
    out as it is; all processes read together then.
    """
    if (folder / STATE).exists():
        whole = read_tensors(folder / STATE)
        return {name: _laid_out(tensor, _like(name, tensor.shape, layout)) for name, tensor in whole.items()}
    if not (folder / INDEX).exists():
        return {}
    written = FileSystemReader(folder).read_metadata().state_dict_metadata
    found = {
        name: _empty(entry, _like(name, entry.size, layout))
        for name, entry in written.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it reads alone is what was asked for
        load(found, checkpoint_id=folder, no_dist=layout is None)
    return found


def _like(name: str, shape: torch.Size, layout: Mapping[str, Tensor] | None) -> DTensor | None:
    """The master that a tensor of the state belongs to; None if it is whole in every process."""
    master = (layout or {}).get(name.partition(".")[2])
    return master if isinstance(master, DTensor) and master.shape == shape else None


def _laid_out(tensor: Tensor, like: DTensor | None) -> Tensor:
    if like is None:
        return tensor
    local = tensor.to(like.to_local().device)
    return distribute_tensor(local, like.device_mesh, like.placements, src_data_rank=None)


def _empty(entry: TensorStorageMetadata, like: DTensor | None) -> Tensor:
    dtype = entry.properties.dtype
    return (
        torch.empty(entry.size, dtype=dtype) if like is None else torch.empty_like(like, dtype=dtype).detach()
    )
