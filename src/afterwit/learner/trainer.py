"""From a batch to a version on disk. After a failure the policy is loaded again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import torch

from afterwit.checkpoints import Versions
from afterwit.core.errors import UpdateRefused
from afterwit.core.judged_turn import JudgedTurn
from afterwit.core.judging import Placement, Rendering
from afterwit.core.promotion import SuiteResult
from afterwit.core.teacher import TeacherServer
from afterwit.core.version import Effect, Origin, Version
from afterwit.learner.batch import Item, Refused, TurnLimits, build
from afterwit.learner.parameters import FrozenModels
from afterwit.learner.policy import Policy
from afterwit.learner.recipe import recipe_of
from afterwit.learner.replay import Again, context_of, run_again
from afterwit.learner.scoring import probe
from afterwit.learner.served import require_servable
from afterwit.learner.settings import SERVER, LearnerSettings
from afterwit.learner.update import Phase, Progress, UpdateState, effects, update
from afterwit.objective.settings import ObjectiveSettings

Examine = Callable[[Policy], SuiteResult | None]
"""What an updated policy lost of what people had approved; None: it was not asked."""


class Trainer:
    """Holds the policy at the newest version, and the frozen models that the objective reads."""

    def __init__(
        self,
        versions: Versions,
        rendering: Rendering,
        *,
        settings: LearnerSettings,
        objective: ObjectiveSettings,
        placement: Placement = Placement.LAST_USER,
        teacher: TeacherServer | None = None,
    ) -> None:
        """`teacher` is the server that scores hints, if `settings.teacher` says so. SettingError if it cannot
        do so for the objective."""
        if settings.teacher == SERVER:
            require_servable(objective)
        self.versions = versions
        self.settings = settings
        self.objective = objective
        self._rendering = rendering
        self._placement = placement
        self._teacher = teacher
        self._policy: Policy | None = None
        self.frozen = FrozenModels(versions.base, settings, server=teacher)

    def begin(self, *, now: float) -> None:
        """Write version 0 if it is missing, and load the newest.

        SettingError if one cannot be loaded, or if the server with the teacher is not fit.
        """
        if self._served is not None:
            self._served.open()
        if self.settings.threads:
            torch.set_num_threads(self.settings.threads)
        policy = self.policy()
        if self.versions.get(0) is not None:
            return
        base = policy if policy.number == 0 else Policy.load(self.versions, 0, self.settings)
        version = Version(number=0, parent=None, origin=Origin.BASE, created=now, probe=probe(base.model))
        with self.versions.writing():
            self.versions.write(version, lambda folder: None)

    def policy(self) -> Policy:
        """The policy at the newest version, loaded again if the one in memory is another."""
        newest = self.versions.newest()
        if self._policy is None or self._policy.number != newest:
            self.drop()
            self._policy = Policy.load(self.versions, newest, self.settings)
        return self._policy

    def drop(self) -> None:
        """Forget the policy in memory: the version on disk counts."""
        self._policy = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def build(
        self, samples: Sequence[JudgedTurn], *, version: int | None = None
    ) -> tuple[list[Item], list[Refused]]:
        """The items of the next update, or of one that starts at `version`, and the turns that it refuses."""
        limits = TurnLimits(
            max_tokens=self.context,
            max_staleness=self.settings.max_staleness,
            version=self.versions.newest() if version is None else version,
        )
        return build(samples, self._rendering, self._placement, limits, self.objective)

    @property
    def _served(self) -> TeacherServer | None:
        return self.frozen.served if self.objective.needs_teacher else None

    @property
    def context(self) -> int:
        """Most tokens of prompt and response: the least of the setting and of either model's context."""
        return context_of(self.policy(), self.settings, self._served)

    def train(
        self,
        new: Sequence[Item],
        replayed: Sequence[Item],
        *,
        now: float,
        progress: Progress,
        objective: ObjectiveSettings | None = None,
        metrics: Mapping[str, float] = MappingProxyType({}),
        examine: Examine = lambda policy: None,
    ) -> Version:
        """One update and its version, whose manifest is on disk on return.

        `objective` replaces the trainer's own; `metrics` stand in the manifest beside the update's own.
        `examine` is called with the updated policy before anything is written; what it raises gives the
        update up. Raises UpdateRefused if the update would not be finite, VersionTaken if a rollback came
        first. After any error the next update starts from the newest version on disk.
        """
        policy = self.policy()
        number = policy.number + 1
        measured: tuple[Effect, ...] = ()

        def ended(state: UpdateState) -> None:
            nonlocal measured
            measured = effects(state, range(len(new))) if self.settings.measure_effects else ()

        try:
            items, chosen = [*new, *replayed], objective or self.objective
            found = update(policy, self.frozen, items, chosen, self.settings, progress, ended)
            suite = examine(policy)
            version = Version(
                number=number,
                parent=policy.number,
                origin=Origin.UPDATE,
                created=now,
                turns=tuple(item.turn for item in new if item.turn is not None),
                replayed=tuple(item.turn for item in replayed if item.turn is not None),
                probe=probe(policy.model),
                metrics={**found, **metrics},
                recipe=recipe_of(items, chosen, self.settings, self._placement),
                effects=measured,
                suite=suite,
            )
            written = self.write(version, policy, progress)
        except BaseException:
            self.drop()
            raise
        policy.number = number
        progress(Phase.WRITTEN)
        return written

    def replay(self, start: int, steps: Iterable[Again], *, progress: Progress) -> Policy:
        """The policy at `start` after these updates, which are run again as they were; nothing is written.

        Raises NotReplayable if an update would read something else than it did. The policy in memory is
        forgotten.
        """
        self.drop()
        return run_again(
            self.versions,
            start,
            steps,
            self._rendering,
            self.frozen,
            self.settings,
            progress,
            server=self._teacher,
        )

    def write(self, version: Version, policy: Policy, progress: Progress) -> Version:
        """Write the policy as this version, whose manifest is on disk on return.

        Raises UpdateRefused if its probe is not finite, VersionTaken if another version came first.
        """
        if not all(map(math.isfinite, version.probe.logprobs)):
            raise UpdateRefused(f"the weights of version {version.number} give log-probs that are not finite")

        def fill(folder: Path) -> None:
            policy.trained.write(folder, self.versions.base)
            progress(Phase.WRITING)
            policy.save_state(folder)

        with self.versions.writing():
            return self.versions.write(version, fill)
