"""What rank 0 tells the others to do with it. Each order is the same few steps on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from afterwit.checkpoints import Versions
from afterwit.core.promotion import Item as SuiteItem
from afterwit.core.teacher import TeacherServer
from afterwit.core.version import Effect, Probe
from afterwit.learner.batch import Item
from afterwit.learner.parameters import FrozenModels
from afterwit.learner.parameters.sharded import Sharded
from afterwit.learner.policy import Policy
from afterwit.learner.ranks.ranks import Ranks
from afterwit.learner.ranks.weights import sharded, taken
from afterwit.learner.scoring import probe
from afterwit.learner.settings import LearnerSettings
from afterwit.learner.suite import read
from afterwit.learner.update import Epoch, Phase, Progress, UpdateState, effects, update
from afterwit.learner.work import to_measure
from afterwit.objective.settings import ObjectiveSettings

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
