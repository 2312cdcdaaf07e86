"""The state of an update, which its micro-batches share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedModel

from afterwit.learner.batch import Item
from afterwit.learner.policy import Policy
from afterwit.learner.ranks import ALONE, Ranks
from afterwit.learner.scoring.packing import MicroBatch, Packing
from afterwit.objective.denominators import Denominators
from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target


@dataclass(slots=True, kw_only=True)
class UpdateState:
    """One batch on its way through an update."""

    policy: Policy
    teacher: PreTrainedModel | None
    """None: no hint is read, or the teacher ran elsewhere."""
    reference: PreTrainedModel | None
    """None: beta is 0."""
    items: Sequence[Item]
    samples: Sequence[Sample]
    """Of the items, in order."""
    over: Denominators
    objective: ObjectiveSettings
    limit: int
    """Tokens of a micro-batch."""
    packing: Packing
    passes: Sequence[MicroBatch]
    """Of the items, those that this rank runs."""
    ranks: Ranks = ALONE
    fused: bool
    """Whether the heads of all models are fused with the loss; else `plain` runs."""
    targets: dict[int, Target] = field(default_factory=dict)
    """By the index of this rank's items; filled in the first epoch, when the policy is the old one."""
