"""Full weights in shards: every process holds a part of each tensor, of its gradient and its moments.

A version's folder has the learner's state in one file, or with shards one of each process and an index.
Either can be read by any learner, in shards or whole. A version may come from another machine or out of a
backup, so all is JSON and safetensors: nothing is unpickled, and no file names another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import PreTrainedModel

from afterwit.checkpoints.manifest import INDEX, SHARD, STATE, parsed
from afterwit.errors import VersionDamaged
from afterwit.learning.models import (
    MASTER,
    REMEDY,
    SHARD_SIZE,
    Masters,
    copy_configuration,
    load_model,
    version_tensors,
    without_prefix,
)
from afterwit.learning.passes import fused_head
from afterwit.learning.settings import LearnerSettings


def write_state(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write the state in shards; call it in all processes: each writes its rows of the DTensors in it."""
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
        tensors = version_tensors(folder / STATE)
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


class ShardedMasters(Masters):
    """The model's own parameters, as DTensors.

    The gradient of the head, which the fused loss makes by hand, adds up whole in each process, and goes to
    its shards once a step.
    """

    def __init__(self, model: PreTrainedModel, head: Mapping[str, str]) -> None:
        """`head`: attribute of the head -> name of that parameter."""
        super().__init__(model)
        self._head, self._names = model.get_output_embeddings(), dict(head)
        self._whole: dict[str, Tensor] = {}

    def gradient(self, own: Tensor | None) -> Tensor | None:
        if own is None:
            return None
        name = next((name for part, name in self._names.items() if getattr(self._head, part) is own), None)
        if name is None:
            raise ValueError("only the head of a sharded model has a gradient that is made by hand")
        if name not in self._whole:
            self._whole[name] = torch.zeros(own.shape, dtype=self.named[name].dtype, device=own.device)
        return self._whole[name]

    def clear(self) -> None:
        super().clear()
        self._whole.clear()

    def gather_head(self, made: bool) -> None:
        """Send the head's gradients to their shards. Of all processes, if any has `made` one."""
        if not made:
            return
        for name in self._names.values():
            master = self.named[name]
            assert isinstance(master, DTensor)
            whole = self._whole.get(name)
            if whole is None:
                whole = torch.zeros(master.shape, dtype=master.dtype, device=master.to_local().device)
            mesh = master.device_mesh
            partial = DTensor.from_local(whole, mesh, [Partial()] * mesh.ndim)
            own = partial.redistribute(placements=master.placements)
            master.grad = own if master.grad is None else master.grad + own
        self._whole.clear()

    @property
    def made_head(self) -> bool:
        return bool(self._whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharded:
    """Full weights of which this process holds a part."""

    model: PreTrainedModel
    masters: ShardedMasters
    dtype: torch.dtype
    """Of the versions' weights."""
    base: None = None

    @classmethod
    def load(
        cls, folder: Path, settings: LearnerSettings, mesh: DeviceMesh
    ) -> tuple[Self, dict[str, Tensor], bool]:
        """This process's shards of a version, its part of the state, and whether the head can be fused with
        the loss, which only the whole model shows."""
        dtype = getattr(torch, settings.dtype)
        rounds = settings.dtype == "bfloat16"
        model = load_model(folder, dtype=torch.float32 if rounds else dtype, device=torch.device("cpu"))
        fused = settings.loss_backend == "fused" and fused_head(model) is not None
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        parts = model.get_output_embeddings().named_parameters(recurse=False)
        head = {part: names[id(own)] for part, own in parts}
        shard(model, mesh, rounded_to=dtype if rounds else None)
        made, state = cls.restored(model, folder, dtype, head)
        return made, state, fused

    @classmethod
    def restored(
        cls,
        model: PreTrainedModel,
        folder: Path,
        dtype: torch.dtype,
        head: Mapping[str, str] = MappingProxyType({}),
        **more: Any,
    ) -> tuple[Self, dict[str, Tensor]]:
        """A model in shards with the master weights of a version, and this process's part of the state.

        `head` is that of `ShardedMasters`; `more` are a subclass's own fields.
        """
        made = cls(model=model, masters=ShardedMasters(model, head), dtype=dtype, **more)
        state = read_state(folder, made.masters.named)
        made.restore(without_prefix(MASTER, state))
        return made, state

    @torch.no_grad()
    def restore(self, masters: Mapping[str, Tensor]) -> None:
        for name, tensor in masters.items():
            self.masters.named[name].copy_(tensor)

    def initial_masters(self, base: Path) -> dict[str, Tensor]:
        raise ValueError("the mean of sharded weights is not kept")

    def gathered(self) -> dict[str, Tensor]:
        """The whole weights as they are written, in the first process; call it in every process."""
        first, found = dist.get_rank() == 0, {}
        for name, master in self.masters.named.items():
            assert isinstance(master, DTensor)
            whole = master.full_tensor().detach()
            if first:
                found[name] = whole.to("cpu", self.dtype)
        return found

    def write(self, folder: Path, base: Path) -> None:
        """Write the model as an ordinary folder, from the first process; call it in every process."""
        self.save(self.gathered(), folder, base)

    def save(self, tensors: Mapping[str, Tensor], folder: Path, base: Path) -> None:
        if dist.get_rank() == 0:
            self.model.save_pretrained(folder, state_dict=dict(tensors), max_shard_size=SHARD_SIZE)
            copy_configuration(folder, base)


def mesh_of(settings: LearnerSettings) -> DeviceMesh | None:
    """The mesh of this process's group: [copies, shards of each], or [shards] of the only copy.

    None if this process is alone: a command that only reads.
    """
    if not dist.is_initialized():
        return None
    copies = dist.get_world_size() // settings.shards
    return _mesh(torch.device(settings.device).type, copies, settings.shards)


@cache
def _mesh(device: str, copies: int, shards: int) -> DeviceMesh:
    if copies == 1:
        return init_device_mesh(device, (shards,), mesh_dim_names=("shard",))
    return init_device_mesh(device, (copies, shards), mesh_dim_names=("replicate", "shard"))


def shard(model: PreTrainedModel, mesh: DeviceMesh, *, rounded_to: torch.dtype | None = None) -> None:
    """Lay the model out over the mesh with FSDP2: each layer by itself, and the rest with the root.

    The embedding and the head are of the root, which stays whole between a forward and its backward pass:
    there the fused head reads them. Gradients are sums over all processes, as those of passes are.
    `rounded_to` is the precision of the passes; None: that of the parameters.
    """
    policy = MixedPrecisionPolicy()
    if rounded_to is not None:
        policy = MixedPrecisionPolicy(param_dtype=rounded_to, reduce_dtype=torch.float32)
    layers = getattr(model.get_decoder(), "layers", ())
    for module in (*layers, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
