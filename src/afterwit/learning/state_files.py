"""The learner's state in a version's folder: one file, or with shards one of each process (DCP).

Either can be read by any learner, in shards or whole. A version may come from another machine or out of a
backup, so nothing in it is unpickled: DCP's index is JSON here, and its parts are read as tensors alone.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor, distribute_tensor

from afterwit.checkpoints.files import INDEX, SHARD, STATE
from afterwit.checkpoints.manifest import names_file, parsed
from afterwit.errors import VersionDamaged
from afterwit.learning.load import REMEDY, read_tensors

DTYPES = {name: getattr(torch, name) for name in ("bfloat16", "float16", "float32", "float64")}


def write_state(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write the state, with DTensors in it from all processes together."""
    if any(isinstance(tensor, DTensor) for tensor in tensors.values()):
        save(dict(tensors), storage_writer=_Writer(folder))
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
    index = _read_index(folder)
    found = {
        name: _empty(torch.Size(each.size), DTYPES[each.dtype], _like(name, torch.Size(each.size), layout))
        for name, each in index.items()
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it reads alone is what was asked for
            load(found, storage_reader=_Reader(folder, index), no_dist=layout is None)
    except CheckpointException as error:
        kinds = ", ".join(sorted({type(each).__name__ for each, _ in error.failures.values()}))
        raise VersionDamaged(f"a part of the state in {folder} cannot be read ({kinds}): {REMEDY}") from error
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Where a part of a tensor is: `length` bytes of a file."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    relative_path: str
    offset: int
    length: int

    @property
    def transform_descriptors(self) -> None:
        """DCP's word for what was done to the bytes: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A tensor in parts."""

    dtype: str
    size: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def check(self, folder: Path) -> None:
        """ValueError unless each part lies in a file of the folder, and all together are as large as the
        tensor: so no more memory is asked for than there are bytes on the disk."""
        width = DTYPES[self.dtype].itemsize if self.dtype in DTYPES else 0
        numbers = [*self.size, *(n for piece in self.pieces for n in (*piece.offsets, *piece.sizes))]
        if not width or min(numbers, default=0) < 0:
            raise ValueError(f"{self.dtype} of {self.size} is no tensor of a state")
        if sum(math.prod(piece.sizes) for piece in self.pieces) != math.prod(self.size):
            raise ValueError(f"its parts are not those of a tensor of {self.size}")
        for piece in self.pieces:
            name = piece.relative_path
            if not (names_file(name) and name.endswith(SHARD)):
                raise ValueError(f"{name!r} is no part of a state")
            there = (folder / name).stat().st_size
            if not (
                0 <= piece.offset <= there - piece.length and math.prod(piece.sizes) * width <= piece.length
            ):
                raise ValueError(f"{name} has {there} bytes, which is too few")


def _read_index(folder: Path) -> dict[str, Stored]:
    try:
        index = parsed(dict[str, Stored], (folder / INDEX).read_bytes())
        for each in index.values():
            each.check(folder)
    except (ValueError, OSError) as error:
        raise VersionDamaged(f"{folder / INDEX} cannot be read ({error}): {REMEDY}") from error
    return index


class _Writer(FileSystemWriter):
    """DCP's, with an index in JSON, written last."""

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        there = {each.index: each.storage_data for of_process in results for each in of_process}
        index = {
            name: asdict(_stored(name, entry, there))
            for name, entry in metadata.state_dict_metadata.items()
            if isinstance(entry, TensorStorageMetadata)
        }
        (Path(self.path) / INDEX).write_text(json.dumps(index))


def _stored(name: str, entry: TensorStorageMetadata, there: Mapping[MetadataIndex, Any]) -> Stored:
    pieces = [(chunk, there[MetadataIndex(name, chunk.offsets)]) for chunk in entry.chunks]
    return Stored(
        dtype=str(entry.properties.dtype).removeprefix("torch."),
        size=tuple(entry.size),
        pieces=tuple(
            Piece(
                offsets=tuple(chunk.offsets),
                sizes=tuple(chunk.sizes),
                relative_path=info.relative_path,
                offset=info.offset,
                length=info.length,
            )
            for chunk, info in pieces
        ),
    )


class _Reader(FileSystemReader):
    """DCP's, with an index that was read before."""

    def __init__(self, folder: Path, index: Mapping[str, Stored]) -> None:
        super().__init__(folder)
        self._index = index

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return Metadata(
            state_dict_metadata={
                name: TensorStorageMetadata(
                    properties=TensorProperties(dtype=DTYPES[each.dtype]),
                    size=torch.Size(each.size),
                    chunks=[
                        ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.sizes))
                        for piece in each.pieces
                    ],
                )
                for name, each in self._index.items()
            },
            storage_data={
                MetadataIndex(name, piece.offsets): piece
                for name, each in self._index.items()
                for piece in each.pieces
            },
        )


def _like(name: str, shape: torch.Size, layout: Mapping[str, Tensor] | None) -> DTensor | None:
    """The master that a tensor of the state belongs to; None if it is whole in every process."""
    master = (layout or {}).get(name.partition(".")[2])
    return master if isinstance(master, DTensor) and master.shape == shape else None


def _laid_out(tensor: Tensor, like: DTensor | None) -> Tensor:
    if like is None:
        return tensor
    local = tensor.to(like.to_local().device)
    return distribute_tensor(local, like.device_mesh, like.placements, src_data_rank=None)


def _empty(size: Sequence[int], dtype: torch.dtype, like: DTensor | None) -> Tensor:
    return torch.empty(size, dtype=dtype) if like is None else torch.empty_like(like, dtype=dtype).detach()
