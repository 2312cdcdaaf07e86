"""The learner's state in a version's folder: one file, or with shards one of each process and an index.

Either can be read by any learner, in shards or whole. A version may come from another machine or out of a
backup, so all is JSON and safetensors: nothing is unpickled, and no file names another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from afterwit.checkpoints.files import INDEX, SHARD, STATE
from afterwit.checkpoints.manifest import parsed
from afterwit.errors import VersionDamaged
from afterwit.learning.models import REMEDY, read_tensors


def write_state(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write the state. If DTensors are in it call it in all processes: each writes its rows of them."""
    if not any(isinstance(tensor, DTensor) for tensor in tensors.values()):
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / STATE)
        return
    rank, mine, first_rows = dist.get_rank(), dict[str, Tensor](), dict[str, str]()
    for name, tensor in tensors.items():
        if not isinstance(tensor, DTensor):
            if rank == 0:
                mine[name] = tensor.contiguous()
            continue
        mesh, placements = tensor.device_mesh, tensor.placements
        copies = zip(mesh.get_coordinate() or (), placements, strict=True)
        another_writes = any(place and placement.is_replicate() for place, placement in copies)
        if not another_writes and tensor.to_local().numel():
            _, offsets = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
            mine[name], first_rows[name] = tensor.to_local().contiguous(), str(offsets[0] if offsets else 0)
    save_file(mine, folder / f"learner-{rank}{SHARD}", metadata=first_rows)
    if rank == 0:
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        (folder / INDEX).write_text(json.dumps(shapes))


def read_state(folder: Path, layout: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The state; {} if there is none, as in the base. VersionDamaged if it cannot be read.

    `layout`: the masters by name if they are DTensors. A tensor that belongs to one of them (`exp_avg.NAME`)
    is laid out like it; call it in all processes then.
    """
    if (folder / STATE).exists():
        tensors = read_tensors(folder / STATE)
        return {name: _laid_out(name, tensor, layout) for name, tensor in tensors.items()}
    if not (folder / INDEX).exists():
        return {}
    try:
        shapes = parsed(dict[str, tuple[int, ...]], (folder / INDEX).read_bytes())
        with ExitStack() as stack:
            paths = sorted(folder.glob(f"*{SHARD}"))
            files = [stack.enter_context(safe_open(path, framework="pt")) for path in paths]
            held, starts = [set(file.keys()) for file in files], [file.metadata() or {} for file in files]
            found = {}
            for name, shape in shapes.items():
                there = [at for at, names in enumerate(held) if name in names]
                if not there:
                    raise ValueError(f"{name} is in no file")
                there.sort(key=lambda at: int(starts[at].get(name, 0)))
                parts = [files[at].get_tensor(name) for at in there]
                tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
                if tensor.shape != shape:
                    raise ValueError(f"{name} has the shape {list(tensor.shape)}, not {list(shape)}")
                found[name] = _laid_out(name, tensor, layout)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise VersionDamaged(f"the state in {folder} cannot be read ({error}): {REMEDY}") from error
    return found


def _laid_out(name: str, tensor: Tensor, layout: Mapping[str, Tensor] | None) -> Tensor:
    """The tensor in shards like the master that it belongs to, if that is in shards."""
    like = (layout or {}).get(name.partition(".")[2])
    if not isinstance(like, DTensor) or like.shape != tensor.shape:
        return tensor
    local = tensor.to(like.to_local().device)
    return distribute_tensor(local, like.device_mesh, like.placements, src_data_rank=None)
