"""The state of an update, which its micro-batches share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learning.batch import Item
from afterwit.learning.distributed.ranks import ALONE, Ranks, Stream, streamed
from afterwit.learning.policy import Policy
from afterwit.learning.rows import MicroBatch, Packing, Row
from afterwit.objective.advantage import Denominators
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


def teacher_outputs(
    state: UpdateState, chosen: Sequence[int], stream: Stream
) -> tuple[Iterator[Tensor], Iterator[Tensor]]:
    """The teacher's outputs after each hint of the chosen turns without a target, and the reference's.

    If both are the same model there is one stream, turn by turn, hints first, so that they share prompts.
    """
    hinted = [() if index in state.targets else state.items[index].teachers for index in chosen]
    plain = [() if state.reference is None else (state.items[index].student,) for index in chosen]
    if state.teacher is state.reference:
        both = _outputs(
            state, state.teacher, [hints + own for hints, own in zip(hinted, plain, strict=True)], stream
        )
        return both, both
    return _outputs(state, state.teacher, hinted, stream), _outputs(state, state.reference, plain, stream)


def _outputs(
    state: UpdateState, model: PreTrainedModel | None, rows: Sequence[tuple[Row, ...]], stream: Stream
) -> Iterator[Tensor]:
    flat = [row for each in rows for row in each]
    if model is None:
        return iter(())
    return streamed(stream, model, flat, state.limit, state.packing, state.ranks)
