"""The policy in verl's FSDP2 engine. A learner in shards can go on from its versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from verl.trainer.config import CheckpointConfig
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine import FSDPEngineWithLMHead

from afterwit.api.learning import Policy, Sharded, Versions, device_of, without_dropout
from afterwit.api.settings import LearnerSettings
from afterwit.api.turns import SettingError

ATTENTION = {"attn_implementation": "sdpa"}
"""In place of verl's choice, a package that verl does not install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Further fields of verl's configuration."""

    model: Mapping[str, Any] = field(default_factory=dict)
    """Of `HFModelConfig`."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Of `FSDPEngineConfig`."""


def load(versions: Versions, number: int, settings: LearnerSettings, options: Options) -> Policy:
    """The policy at a version, whose files have been checked, in verl's engine; call it in all processes.

    SettingError if verl does not know an option.
    """
    folder = versions.weights(number, state=True)
    engine = engine_of(folder, settings, options)
    dtype = getattr(torch, settings.dtype)
    trained, tensors = VerlWeights.restored(engine.module, folder, dtype, engine=engine)
    settings = replace(settings, checkpointing=settings.checkpointing or False)  # verl's own option does it
    policy = Policy.of(trained, tensors, versions.base, number, settings, fused=False)
    policy.fresh_optimizer = not tensors and folder != versions.base
    engine.optimizer = policy.optimizer
    return policy


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlWeights(Sharded):
    """Full weights in shards, in an engine of verl's."""

    engine: FSDPEngineWithLMHead

    def gathered(self) -> dict[str, Tensor]:
        """The whole weights under the names of the model's own files, as verl gives them to an engine."""
        tensors, _ = self.engine.get_per_tensor_param()
        first, found = dist.get_rank() == 0, {}
        twice = self.model.state_dict().keys() - dict(self.model.named_parameters()).keys()
        for name, tensor in tensors:  # each is gathered from all processes as it is read
            if first and name not in twice:
                found[name] = tensor.detach().to("cpu", self.dtype)
        return found


def engine_in(policy: Policy) -> FSDPEngineWithLMHead:
    """The engine that holds the policy. ValueError if none does."""
    if not isinstance(policy.trained, VerlWeights):
        raise ValueError("the policy is not in an engine of verl's")
    return policy.trained.engine


def engine_of(folder: Path, settings: LearnerSettings, options: Options) -> FSDPEngineWithLMHead:
    """The engine with the model in a folder, over all processes of the group; `settings` are `in_verl`.

    The caller gives it the optimiser. A process that is in no group becomes one of its own.
    SettingError if verl does not know an option.
    """
    if not dist.is_initialized():
        backend = "nccl" if device_of(settings.device).type == "cuda" else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    model = {
        "path": str(folder),
        "load_tokenizer": False,
        "enable_gradient_checkpointing": False,
        "use_remove_padding": False,
        "override_config": ATTENTION,
        **options.model,
    }
    sharding = {
        "strategy": "fsdp2",
        "mixed_precision": {"param_dtype": settings.dtype, "reduce_dtype": "fp32"},
        "use_torch_compile": False,
        **options.engine,
    }
    try:
        engine = FSDPEngineWithLMHead(
            HFModelConfig(**model),
            FSDPEngineConfig(**sharding),
            FSDPOptimizerConfig(clip_grad=settings.clip),
            CheckpointConfig(),
        )
    except (TypeError, AttributeError) as error:
        raise SettingError(f"verl refuses its options: {error}") from error
    engine.initialize()
    without_dropout(engine.module)
    return engine
