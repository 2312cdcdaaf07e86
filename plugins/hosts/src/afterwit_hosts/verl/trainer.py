"""The learner's trainer over a policy in verl's engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel

from afterwit.api.learning import Follower, NotRepeatable, Policy, Ranks, Trainer, Versions
from afterwit.api.settings import LearnerSettings
from afterwit_hosts.verl.policy import Options, load
from afterwit_hosts.verl.update import epoch


class VerlTrainer(Trainer):
    """As `Trainer`, whose arguments it takes."""

    def __init__(self, *arguments: Any, options: Options, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.epoch = epoch
        self._options = options

    def load(
        self,
        versions: Versions,
        number: int,
        settings: LearnerSettings,
        base: PreTrainedModel | None = None,
    ) -> Policy:
        wanted = {"number": number, "settings": settings, "versions": versions}
        with self.ranks.leading(hold, **wanted, options=self._options):
            return _loaded(versions, number, settings, self._options, self.ranks)

    def rerun(self, *arguments: Any, **more: Any) -> Policy:
        """Raises NotRepeatable: updates are run again by the learner itself."""
        raise NotRepeatable("verl's engine trains this home: stop it, and forget with `afterwit forget`")


def hold(
    at: Follower, *, number: int, settings: LearnerSettings, versions: Versions, options: Options
) -> None:
    """Hold the policy that rank 0 loads. An order to the other ranks."""
    at.policy = None
    at.policy = _loaded(replace(versions, base=at.base), number, at.own(settings), options, at.ranks)


def _loaded(
    versions: Versions, number: int, settings: LearnerSettings, options: Options, ranks: Ranks
) -> Policy:
    """The policy at a version, whose folder each rank reads once rank 0 has checked the files."""
    if ranks.rank == 0:
        Policy.require(versions, number, settings)
    ranks.every(None)
    with ranks.in_lockstep():
        return load(versions, number, settings, options)
