"""An update on its way: what its passes read, and the targets they fill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedModel

from afterwit.learner.batch import Item
from afterwit.learner.policy import Policy
from afterwit.learner.scoring.packing import Packing
from afterwit.learner.update.phase import Progress
from afterwit.objective.sample import Denominators, Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target


@dataclass(slots=True, kw_only=True)
class UpdateState:
    """`targets` fills in the first epoch, whose policy is the old one."""

    policy: Policy
    base: PreTrainedModel | None
    teacher: PreTrainedModel | None
    items: Sequence[Item]
    samples: list[Sample]
    over: Denominators
    objective: ObjectiveSettings
    limit: int
    packing: Packing
    progress: Progress
    targets: dict[int, Target] = field(default_factory=dict)
