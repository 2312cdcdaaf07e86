"""What rank 0 tells the others to do with it. Each order is the same few steps on both sides."""

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
from afterwit.learning.effect import effects, read, to_measure
from afterwit.learning.frozen import FrozenModels
from afterwit.learning.full import FullWeights
from afterwit.learning.lora import Adapter
from afterwit.learning.phase import Phase, Progress
from afterwit.learning.policy import Policy, Trained
from afterwit.learning.score import probe
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.sharded import Sharded
from afterwit.learning.update import Epoch, update
from afterwit.learning.update_state import UpdateState
from afterwit.objective.settings import ObjectiveSettings
from afterwit.promotion.items import Item as SuiteItem
from afterwit.teacher import TeacherServer
from afterwit.version import Effect, Probe

OF_A_MACHINE = ("device", "teacher_device", "reference_device", "threads")
"""Settings that each rank takes from its own machine; all others are rank 0's."""


@dataclass(slots=True, kw_only=True)
class Follower:
    """What a rank that is not the first holds."""

    base: Path
    settings: LearnerSettings
    frozen: FrozenModels
    server: TeacherServer | None
    ranks: Ranks
    watch: Progress
    """Rank 0 renews the leases and is told to stop; nothing needs to be done here."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Find the server with the teacher, if there is one."""

    teacher: bool

    def run(self, frozen: FrozenModels, ranks: Ranks) -> None:
        with ranks.together():
            if self.teacher and frozen.served is not None:
                frozen.served.open()

    def follow(self, at: Follower) -> None:
        self.run(at.frozen, at.ranks)


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
        kept = at.held().trained.base if self.keeps_base and at.policy is not None else None
        at.policy = None
        settings = at.own(self.settings)
        if at.ranks.lockstep:
            versions = replace(self.versions, base=at.base)
            at.policy = sharded(versions, self.number, settings, at.ranks)
        else:
            at.policy = taken(at.base, self.number, settings, at.ranks, model=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Move the policy by a batch; the first `measured` items are those that have an effect."""

    items: Sequence[Item]
    objective: ObjectiveSettings
    settings: LearnerSettings
    measured: int
    epoch: Epoch | None = None
    """What makes a step of the optimiser, if not the learner itself: a function of a module."""

    def run(
        self,
        policy: Policy,
        frozen: FrozenModels,
        settings: LearnerSettings,
        progress: Progress,
        ranks: Ranks,
    ) -> tuple[dict[str, float], tuple[Effect, ...]]:
        """The update's metrics and its effects. UpdateRefused if it is not finite."""
        measured: tuple[Effect, ...] = ()

        def ended(state: UpdateState) -> None:
            nonlocal measured
            if self.measured:
                read = to_measure(self.items, self.measured)
                measured = effects(state, range(self.measured), measured=read)

        found = update(
            policy, frozen, self.items, self.objective, settings, progress, ended, ranks, self.epoch
        )
        return found, measured

    def follow(self, at: Follower) -> None:
        settings = at.own(self.settings)
        frozen = at.frozen
        if not settings.alike(at.settings):
            frozen = FrozenModels(at.base, settings, server=at.server)
        self.run(at.held(), frozen, settings, at.watch, at.ranks)


@dataclass(frozen=True, slots=True)
class Probed:
    """Score the probe. Alone rank 0 cannot: it holds a part of the model."""

    def run(self, policy: Policy, ranks: Ranks) -> Probe:
        with ranks.running():
            return probe(policy.model)

    def follow(self, at: Follower) -> None:
        self.run(at.held(), at.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Write the policy into a folder: rank 0 the weights, each rank its part of the state."""

    folder: Path
    base: Path

    def run(self, policy: Policy, progress: Progress, ranks: Ranks) -> None:
        if not isinstance(policy.trained, Sharded):
            raise ValueError("whole weights are written by rank 0 alone")
        with ranks.running():
            weights = policy.trained.gathered()
        with ranks.together():
            policy.trained.save(weights, self.folder, self.base)
        progress(Phase.WRITING)
        with ranks.running():
            policy.save_state(self.folder)

    def follow(self, at: Follower) -> None:
        self.run(at.held(), at.watch, at.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examine:
    """Read approved responses with the policy."""

    items: Sequence[SuiteItem]
    settings: LearnerSettings

    def follow(self, at: Follower) -> None:
        read(at.held(), self.items, at.own(self.settings), at.ranks)


def load(
    versions: Versions,
    number: int,
    settings: LearnerSettings,
    ranks: Ranks,
    *,
    base: PreTrainedModel | None = None,
) -> Policy:
    """`Policy.load`, in all ranks."""
    order = Load(number=number, settings=settings, versions=versions, keeps_base=base is not None)
    with ranks.leading(order):
        if ranks.lockstep:
            return sharded(versions, number, settings, ranks)
        with ranks.together():
            policy = Policy.load(versions, number, settings, base=base)
        if ranks.size > 1:
            given(policy, ranks)
    return policy


def probed(policy: Policy, ranks: Ranks) -> Probe:
    """The policy's probe."""
    if not ranks.lockstep:
        return probe(policy.model)
    order = Probed()
    with ranks.leading(order):
        return order.run(policy, ranks)


def write(policy: Policy, folder: Path, base: Path, progress: Progress, ranks: Ranks) -> None:
    """Write weights, then the learner's state, into a version's folder."""
    if ranks.lockstep:
        order = Write(folder=folder, base=base)
        with ranks.leading(order):
            order.run(policy, progress, ranks)
        return
    policy.trained.write(folder, base)
    progress(Phase.WRITING)
    policy.save_state(folder)


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
