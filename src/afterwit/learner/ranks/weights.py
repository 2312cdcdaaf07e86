"""How all ranks come to hold the policy that rank 0 read: the base from the own disk, the rest from it."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedModel

from afterwit.checkpoints import Versions
from afterwit.learner.parameters import Adapter, FullWeights
from afterwit.learner.policy import Policy, Trained
from afterwit.learner.ranks.ranks import Ranks
from afterwit.learner.settings import LearnerSettings


def given(policy: Policy, ranks: Ranks) -> None:
    """Rank 0's side of `taken`."""
    ranks.spread(policy.masters.named)
    ranks.spread(policy.state())
    with ranks.together():
        """The others make theirs of it."""


def taken(
    base: Path,
    number: int,
    settings: LearnerSettings,
    ranks: Ranks,
    *,
    model: PreTrainedModel | None = None,
) -> Policy:
    """The policy that rank 0 has, on this rank's device. `model` is the base, if it is in memory already."""
    with ranks.together():
        trained = _at_base(base, settings, model)
    masters = ranks.spread({})
    state = ranks.spread({})
    with ranks.together(), torch.no_grad():
        for name, master in trained.masters.named.items():
            master.copy_(masters[name])
        trained.masters.publish()
        return Policy.of(trained, state, base, number, settings)


def sharded(versions: Versions, number: int, settings: LearnerSettings, ranks: Ranks) -> Policy:
    """This rank's part of a version, which it reads itself once rank 0 has checked the files."""
    with ranks.together():
        if ranks.rank == 0:
            Policy.require(versions, number, settings)
    with ranks.running():
        return Policy.load(versions, number, settings, verified=True)


def _at_base(base: Path, settings: LearnerSettings, model: PreTrainedModel | None) -> Trained:
    if settings.lora_rank:
        return Adapter.load(base, base, settings, model=model)
    return FullWeights.load(base, {}, settings)
