"""The orders of rank 0 to the other ranks. Each makes them take the same few steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from transformers import PreTrainedModel

from afterwit.checkpoints.versions import Versions
from afterwit.learning.batch import Item
from afterwit.learning.distributed.ranks import Ranks
from afterwit.learning.distributed.sharded import Sharded
from afterwit.learning.frozen import FrozenModels
from afterwit.learning.metrics import item_logprobs, measure
from afterwit.learning.models import Adapter, FullWeights
from afterwit.learning.phase import Phase, Progress
from afterwit.learning.policy import Policy, Trained
from afterwit.learning.score import probe
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import Epoch, update
from afterwit.objective.settings import ObjectiveSettings
from afterwit.promotion.suite import SuiteItem
from afterwit.teacher import TeacherServer
from afterwit.version import Probe

OF_A_MACHINE = ("device", "teacher_device", "reference_device", "threads")
"""Settings that each rank takes from its own machine; all others are rank 0's."""


@dataclass(slots=True, kw_only=True)
class Follower:
    """The state of a rank that is not the first."""

    base: Path
    settings: LearnerSettings
    frozen: FrozenModels
    server: TeacherServer | None
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


class Order(Protocol):
    def follow(self, at: Follower) -> None:
        """Do this rank's part."""


@dataclass(frozen=True, slots=True)
class OpenTeacher:
    """Open the server with the teacher, if there is one."""

    def follow(self, at: Follower) -> None:
        if at.frozen.served is not None:
            at.frozen.served.open()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Hold the policy that rank 0 loads."""

    number: int
    settings: LearnerSettings
    versions: Versions
    """Those of rank 0, from whose folder each rank reads its shards."""
    keeps_base: bool = False
    """The frozen base is that of the policy before: another adapter is trained on it."""

    def follow(self, at: Follower) -> None:
        base = at.held().trained.base if self.keeps_base and at.policy is not None else None
        at.policy = None
        settings = at.own(self.settings)
        if at.ranks.lockstep:
            at.policy = _shards(replace(self.versions, base=at.base), self.number, settings, at.ranks)
        else:
            at.policy = _received(at.base, self.number, settings, at.ranks, base)


def load(
    versions: Versions,
    number: int,
    settings: LearnerSettings,
    ranks: Ranks,
    *,
    base: PreTrainedModel | None = None,
) -> Policy:
    """`Policy.load`, in all ranks."""
    with ranks.leading(
        Load(number=number, settings=settings, versions=versions, keeps_base=base is not None)
    ):
        if ranks.lockstep:
            return _shards(versions, number, settings, ranks)
        policy = Policy.load(versions, number, settings, base=base)
        if ranks.size > 1:
            ranks.spread(policy.masters.named)
            ranks.spread(policy.state())
        return policy


def _received(
    folder: Path, number: int, settings: LearnerSettings, ranks: Ranks, base: PreTrainedModel | None
) -> Policy:
    """The policy of rank 0, on this rank's device. `base` is the frozen base, if it is in memory already."""
    trained: Trained
    if settings.lora_rank:
        trained = Adapter.load(folder, folder, settings, model=base)
    else:
        trained = FullWeights.load(folder, {}, settings)
    masters, state = ranks.spread({}), ranks.spread({})
    with torch.no_grad():
        for name, master in trained.masters.named.items():
            master.copy_(masters[name])
    trained.masters.publish()
    return Policy.of(trained, state, folder, number, settings)


def _shards(versions: Versions, number: int, settings: LearnerSettings, ranks: Ranks) -> Policy:
    """This rank's part of a version, which it reads itself once rank 0 has checked the files."""
    if ranks.rank == 0:
        Policy.require(versions, number, settings)
    ranks.every(None)
    with ranks.in_lockstep():
        return Policy.load(versions, number, settings, verified=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Move the policy by a batch."""

    items: Sequence[Item]
    objective: ObjectiveSettings
    settings: LearnerSettings
    measured: int = 0
    """The effect of this many items, the first ones, is measured."""
    epoch: Epoch | None = None
    """Takes a step of the optimiser in the learner's place: a function of a module."""

    def follow(self, at: Follower) -> None:
        settings, frozen = at.own(self.settings), at.frozen
        if not settings.alike(at.settings):
            frozen = FrozenModels(at.base, settings, server=at.server)
        update(
            at.held(),
            frozen,
            self.items,
            self.objective,
            settings,
            at.watch,
            lambda state: measure(state, self.measured),
            at.ranks,
            self.epoch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadItems:
    """Read approved responses with the policy."""

    items: Sequence[SuiteItem]
    settings: LearnerSettings

    def follow(self, at: Follower) -> None:
        item_logprobs(at.held(), self.items, at.own(self.settings), at.ranks)


@dataclass(frozen=True, slots=True)
class Probing:
    """Score the probe, in lockstep."""

    def follow(self, at: Follower) -> None:
        with at.ranks.in_lockstep():
            probe(at.held().model)


def probed(policy: Policy, ranks: Ranks) -> Probe:
    """The policy's probe."""
    if not ranks.lockstep:
        return probe(policy.model)
    with ranks.leading(Probing()), ranks.in_lockstep():
        return probe(policy.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Write the shards of a policy into a folder: rank 0 the weights, each rank its part of the state."""

    folder: Path
    base: Path

    def follow(self, at: Follower) -> None:
        _write_shards(at.held(), self.folder, self.base, at.watch, at.ranks)


def write(policy: Policy, folder: Path, base: Path, progress: Progress, ranks: Ranks) -> None:
    """Write weights, then the learner's state, into a version's folder."""
    if ranks.lockstep:
        with ranks.leading(Write(folder=folder, base=base)):
            _write_shards(policy, folder, base, progress, ranks)
        return
    policy.trained.write(folder, base)
    progress(Phase.WRITING)
    policy.save_state(folder)


def _write_shards(policy: Policy, folder: Path, base: Path, progress: Progress, ranks: Ranks) -> None:
    if not isinstance(policy.trained, Sharded):
        raise ValueError("whole weights are written by rank 0 alone")
    with ranks.in_lockstep():
        weights = policy.trained.gathered()
    policy.trained.save(weights, folder, base)
    ranks.every(None)
    progress(Phase.WRITING)
    with ranks.in_lockstep():
        policy.save_state(folder)
