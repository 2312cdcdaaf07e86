"""The policy in verl's engine. Its versions are those of a learner in shards, which goes on from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor
from verl.workers.engine import FSDPEngineWithLMHead

from afterwit.api.learning import (
    Policy,
    Sharded,
    Versions,
)
from afterwit.api.settings import LearnerSettings
from afterwit_hosts.verl.engine import engine_of
from afterwit_hosts.verl.settings import Options


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


def engine_in(policy: Policy) -> FSDPEngineWithLMHead:
    """The engine that holds the policy. ValueError if none does."""
    if not isinstance(policy.trained, VerlWeights):
        raise ValueError("the policy is not in an engine of verl's")
    return policy.trained.engine
