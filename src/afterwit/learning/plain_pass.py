"""A micro-batch with whole logits, and a loss by autograd. The reference of `fused`, and its fallback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from afterwit.learning import metrics
from afterwit.learning.distributed.ranks import NOTHING
from afterwit.learning.rows import MicroBatch
from afterwit.learning.score import response_logits, stream_logits
from afterwit.learning.update_state import UpdateState, teacher_outputs
from afterwit.objective.logprobs import at, logprobs
from afterwit.objective.sample_loss import sample_loss
from afterwit.objective.target import prepare


def accumulate(state: UpdateState, micro_batch: MicroBatch) -> dict[str, float]:
    """Add a micro-batch to the gradient; returns its part of the loss and of each term."""
    loss, terms = losses(state, micro_batch.chosen, _logits(state, micro_batch))
    loss.backward()  # type: ignore[no-untyped-call]
    return {**terms, "loss": loss.item()}


def losses(
    state: UpdateState, chosen: Sequence[int], logits: Sequence[Tensor]
) -> tuple[Tensor, Counter[str]]:
    """The part of the chosen turns, whose logits [T, V] these are, in the loss and in each of its terms."""
    hinted, plain = teacher_outputs(state, chosen, stream_logits)
    loss, terms = logits[0].new_zeros(()), Counter[str]()
    for index, logits_TV in zip(chosen, logits, strict=True):
        sample, known = state.samples[index], index in state.targets
        if not known:
            teachers = _teachers(state, index, hinted, logits_TV.device)
            state.targets[index] = prepare(sample, logits_TV.detach(), teachers, state.objective)
        target = state.targets[index]
        reference_TV = None if state.reference is None else next(plain).to(logits_TV.device)
        part = sample_loss(
            logits_TV, sample, target, state.over, state.objective, logits_reference_TV=reference_TV
        )
        loss = loss + part.loss
        terms.update({name: value.item() for name, value in part.terms.items()})
        if known:
            now_T = at(logprobs(logits_TV.detach(), sample.tau), sample.ids_T)
            terms.update(metrics.ratio(now_T[sample.mask_T], sample, target, of=len(state.items)))
    return loss, terms


def accumulate_nothing(state: UpdateState) -> None:
    """Run the models as `accumulate` of other ranks does, with gradients of 0."""
    (logits_TV,) = response_logits(state.policy.model, [NOTHING])
    teacher_outputs(state, (), stream_logits)
    (logits_TV.sum() * 0).backward()  # type: ignore[no-untyped-call]


@torch.no_grad()
def score(state: UpdateState, micro_batch: MicroBatch) -> None:
    """Fill the targets of a micro-batch, and learn nothing."""
    hinted, plain = teacher_outputs(state, micro_batch.chosen, stream_logits)
    for index, logits_TV in zip(micro_batch.chosen, _logits(state, micro_batch), strict=True):
        sample = state.samples[index]
        teachers = _teachers(state, index, hinted, logits_TV.device)
        state.targets[index] = prepare(sample, logits_TV, teachers, state.objective)
        if state.reference is not None:
            next(plain)


def _teachers(
    state: UpdateState, index: int, hinted: Iterator[Tensor], device: torch.device
) -> Iterable[Tensor]:
    """The teacher of each of a turn's hints, in their order."""
    return (each_TV.to(device) for each_TV in islice(hinted, state.samples[index].hints))


def _logits(state: UpdateState, micro_batch: MicroBatch) -> list[Tensor]:
    students = [state.items[index].student for index in micro_batch.chosen]
    return response_logits(state.policy.model, students, packed=micro_batch.packed)
