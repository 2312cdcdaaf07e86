"""The learner's trainer over a policy in verl's engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from afterwit.checkpoints.ancestry import Step
from afterwit.checkpoints.versions import Versions
from afterwit.errors import NotRepeatable
from afterwit.learning.distributed.orders import Follower
from afterwit.learning.distributed.ranks import Ranks
from afterwit.learning.phase import Progress
from afterwit.learning.policy import Policy
from afterwit.learning.rerun import Samples
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer
from afterwit_hosts.verl.policy import load
from afterwit_hosts.verl.settings import Options
from afterwit_hosts.verl.step import epoch


class VerlTrainer(Trainer):
    """As `Trainer`, whose arguments it takes."""

    def __init__(self, *arguments: Any, options: Options, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.epoch = epoch
        self._options = options

    def load(self, number: int, base: PreTrainedModel | None) -> Policy:
        order = Load(number=number, settings=self.settings, versions=self.versions, options=self._options)
        with self._ranks.leading(order):
            return order.run(self.versions.base, self.settings, self._ranks)

    def rerun(
        self,
        start: int,
        steps: Sequence[Step],
        samples: Samples,
        *,
        progress: Progress,
    ) -> Policy:
        """Raises NotRepeatable: updates are run again by the learner itself."""
        raise NotRepeatable("verl's engine trains this home: stop it, and forget with `afterwit forget`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Hold the policy that rank 0 loads: each rank reads the folder. An order to the other ranks."""

    number: int
    settings: LearnerSettings
    versions: Versions
    options: Options

    def run(self, base: Path, settings: LearnerSettings, ranks: Ranks) -> Policy:
        versions = replace(self.versions, base=base)
        if ranks.rank == 0:
            Policy.require(versions, self.number, settings)
        ranks.every(None)
        with ranks.in_lockstep():
            return load(versions, self.number, settings, self.options)

    def follow(self, at: Follower) -> None:
        at.policy = None
        at.policy = self.run(at.base, at.own(self.settings), at.ranks)
