"""How the processes of a learner are laid out if they hold a model in shards."""

from __future__ import annotations

from functools import cache

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers import PreTrainedModel

from afterwit.learner.settings import LearnerSettings


def mesh_of(settings: LearnerSettings) -> DeviceMesh | None:
    """The mesh of this process's group: [copies, shards of each], or [shards] of the only copy.

    None if the settings ask for no shards, or if this process is alone: a command that only reads.
    """
    if settings.shards == 1 or not dist.is_initialized():
        return None
    return _mesh(
        torch.device(settings.device).type, dist.get_world_size() // settings.shards, settings.shards
    )


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
