"""The orders of rank 0 to the other ranks: functions of a `Follower`, and the loop in which it runs them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from afterwit.checkpoints.versions import Versions
from afterwit.learning.distributed.sharded import Sharded, write_state
from afterwit.learning.metrics import item_reads
from afterwit.learning.models import Adapter, FullWeights
from afterwit.learning.passes import Phase, Progress, Ranks, probe
from afterwit.learning.policy import FrozenModels, Policy, Trained
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.promotion.suite import SuiteItem
from afterwit.weights.weights import return_freed

if TYPE_CHECKING:
    from afterwit.learning.distributed.group import Group

log = logging.getLogger(__name__)

OF_A_MACHINE = ("device", "teacher_device", "reference_device", "threads")
"""Settings that each rank takes from its own machine; all others are rank 0's."""


@dataclass(slots=True, kw_only=True)
class Follower:
    base: Path
    settings: LearnerSettings
    frozen: FrozenModels
    ranks: Ranks
    watch: Progress
    """Rank 0 renews the leases and stops; this one only watches."""
    policy: Policy | None = None

    def held(self) -> Policy:
        if self.policy is None:
            raise ValueError("an update was ordered before a policy")
        return self.policy

    def own(self, settings: LearnerSettings) -> LearnerSettings:
        """Rank 0's settings as they are on this machine."""
        return replace(settings, **{name: getattr(self.settings, name) for name in OF_A_MACHINE})


def follow(at: Follower, group: Group) -> None:
    """Follow until rank 0 ends. RankLost if it, or a rank that this one needs, ends otherwise."""
    for order, arguments in group.orders():
        try:
            with group.together():
                order(at, **arguments)
        except Exception as error:
            if not group.is_shared(error):
                raise
            log.info("learn: rank %d: %s: the policy is loaded again", group.rank, error)
            at.policy = None
            return_freed()


def open_teacher(at: Follower) -> None:
    if at.frozen.served is not None:
        at.frozen.served.open()


def hold(
    at: Follower, *, number: int, settings: LearnerSettings, versions: Versions, keeps_base: bool
) -> None:
    """Hold the policy that rank 0 loads, from whose folder each rank reads its shards.

    `keeps_base`: the frozen base is that of the policy before: another adapter is trained on it.
    """
    base = at.policy.base if keeps_base and at.policy is not None else None
    at.policy = None
    at.policy = _loaded(replace(versions, base=at.base), number, at.own(settings), at.ranks, base)


def load(
    versions: Versions, number: int, settings: LearnerSettings, ranks: Ranks, base: PreTrainedModel | None
) -> Policy:
    """`Policy.load`, in all of several ranks."""
    with ranks.leading(
        hold, number=number, settings=settings, versions=versions, keeps_base=base is not None
    ):
        return _loaded(versions, number, settings, ranks, base)


def _loaded(
    versions: Versions, number: int, settings: LearnerSettings, ranks: Ranks, base: PreTrainedModel | None
) -> Policy:
    """Rank 0 reads the version and sends it on. In lockstep each rank reads its part once rank 0 has checked
    the files. `base` is the frozen base, if it is in memory already."""
    if ranks.lockstep:
        if ranks.rank == 0:
            Policy.require(versions, number, settings)
        ranks.every(None)
        with ranks.in_lockstep():
            return Policy.load(versions, number, settings, verified=True)
    if ranks.rank == 0:
        policy = Policy.load(versions, number, settings, base=base)
        ranks.spread(policy.masters.named)
        ranks.spread(policy.state())
        return policy
    trained: Trained
    if settings.lora_rank:
        trained = Adapter.load(versions.base, versions.base, settings, model=base)
    else:
        trained = FullWeights.load(versions.base, {}, settings)
    masters, state = ranks.spread({}), ranks.spread({})
    with torch.no_grad():
        for name, master in trained.masters.named.items():
            master.copy_(masters[name])
    trained.masters.publish()
    return Policy.of(trained, state, versions.base, number, settings)


def run_update(at: Follower, *, settings: LearnerSettings, **batch: Any) -> None:
    own = at.own(settings)
    update(at.held(), at.frozen.under(own), settings=own, progress=at.watch, ranks=at.ranks, **batch)
    return_freed()


def read_items(at: Follower, *, items: Sequence[SuiteItem], settings: LearnerSettings) -> None:
    item_reads(at.held(), items, at.own(settings), at.ranks)


def score_probe(at: Follower) -> None:
    """A pass that rank 0 can run by itself, unless each rank holds a part of the model."""
    if at.ranks.lockstep:
        with at.ranks.in_lockstep():
            probe(at.held().model)


def write_shards(at: Follower, *, folder: Path, base: Path) -> None:
    policy = at.held()
    assert isinstance(policy.trained, Sharded)
    write(policy, policy.trained, folder, base, at.watch, at.ranks)


def write(
    policy: Policy, trained: Sharded, folder: Path, base: Path, progress: Progress, ranks: Ranks
) -> None:
    """`Policy.write` of `trained`, the policy's weights in shards: each rank writes its part of the state."""
    leads = ranks.leading(write_shards, folder=folder, base=base) if ranks.rank == 0 else nullcontext()
    with leads:
        with ranks.in_lockstep():
            weights = trained.gathered()
        trained.save(weights, folder, base)
        ranks.every(None)
        progress(Phase.WRITING)
        with ranks.in_lockstep():
            write_state(policy.state(), folder)
