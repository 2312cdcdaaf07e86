"""The passes of an update: a micro-batch's targets, loss and gradient, from hidden states or whole logits.

With `fused` heads the backbone gives states, and the head loss and gradient by chunks of rows. `plain` passes
take whole logits and a loss by autograd: the reference, and the way for models with an unusual head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.fused_head.head import HeadGradients
from afterwit.fused_head.loss import Reference, fused_loss
from afterwit.fused_head.targets import ScoringInput, collect_rows, targets
from afterwit.learning.batch import Item
from afterwit.learning.distributed.ranks import ALONE, EMPTY_ROW, Ranks, Stream, streamed
from afterwit.learning.policy import Policy
from afterwit.learning.rows import MicroBatch, Packing, Row
from afterwit.learning.score import head_of, response_logits, response_states, stream_logits, stream_states
from afterwit.objective.advantage import Denominators
from afterwit.objective.logprobs import at, logprobs
from afterwit.objective.sample import Sample
from afterwit.objective.sample_loss import sample_loss
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target, prepare


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
    """Whether the heads of all models are fused with the loss; else passes are plain."""
    targets: dict[int, Target] = field(default_factory=dict)
    """By the index of this rank's items; filled in the first epoch, when the policy is the old one."""


def accumulate(state: UpdateState, micro_batch: MicroBatch) -> Mapping[str, float]:
    """Add a micro-batch to the gradient; returns its part of the loss and of each term."""
    if state.fused:
        return _accumulate_fused(state, micro_batch)
    students = [state.items[index].student for index in micro_batch.chosen]
    logits = response_logits(state.policy.model, students, packed=micro_batch.packed)
    loss, terms = losses(state, micro_batch.chosen, logits)
    loss.backward()  # type: ignore[no-untyped-call]
    return {**terms, "loss": loss.item()}


@torch.no_grad()
def score(state: UpdateState) -> None:
    """Fill all targets as the first epoch of an update does. Nothing is learned."""
    for micro_batch in state.passes:
        students = [state.items[index].student for index in micro_batch.chosen]
        if state.fused:
            states_ND = response_states(state.policy.model, students, packed=micro_batch.packed)
            _prepare_targets(state, micro_batch.chosen, states_ND)
        else:
            losses(
                state,
                micro_batch.chosen,
                response_logits(state.policy.model, students, packed=micro_batch.packed),
            )


def accumulate_nothing(state: UpdateState) -> None:
    """Run the models as `accumulate` does in the other ranks, with gradients of 0."""
    if state.fused:
        output, stream = response_states(state.policy.model, [EMPTY_ROW]), stream_states
    else:
        (output,), stream = response_logits(state.policy.model, [EMPTY_ROW]), stream_logits
    teacher_outputs(state, (), stream)
    (output.sum() * 0).backward()  # type: ignore[no-untyped-call]


def _accumulate_fused(state: UpdateState, micro_batch: MicroBatch) -> Mapping[str, float]:
    chosen, policy = micro_batch.chosen, state.policy
    known = [index for index in chosen if index in state.targets]
    students = [state.items[index].student for index in chosen]
    states_ND = response_states(policy.model, students, packed=micro_batch.packed)
    reference = _prepare_targets(state, chosen, states_ND.detach())
    samples, found = [state.samples[index] for index in chosen], [state.targets[index] for index in chosen]
    rows = collect_rows(samples, found, state.over, state.objective)
    head = policy.whole_head()
    gradients = HeadGradients(
        weight_VD=policy.masters.gradient(head.weight_VD),
        bias_V=policy.masters.gradient(head.bias_V),
        down_RD=policy.masters.gradient(None if head.low_rank is None else head.low_rank.down_RD),
        up_VR=policy.masters.gradient(None if head.low_rank is None else head.low_rank.up_VR),
    )
    loss = fused_loss(head, states_ND.detach(), rows, state.objective, gradients, reference=reference)
    states_ND.backward(loss.grad_states_ND)  # type: ignore[no-untyped-call]
    numbers = torch.stack([*loss.terms.values(), loss.loss]).tolist()  # at once: a GPU is waited for once
    counted = Counter(dict(zip((*loss.terms, "loss"), numbers, strict=True)))
    if known:
        parts = torch.split(loss.now_N, [int(sample.mask_T.sum()) for sample in samples])
        for sample, target, now_N in zip(samples, found, parts, strict=True):
            counted.update(_ratio(now_N, sample, target, of=len(state.items)))
    return counted


def _prepare_targets(state: UpdateState, chosen: Sequence[int], states_ND: Tensor) -> Reference | None:
    """Fill the targets of the chosen turns that have none yet; returns the reference's states of all."""
    hinted, plain = teacher_outputs(state, chosen, stream_states)
    own = torch.split(states_ND, [len(state.samples[index].ids_T) for index in chosen])
    inputs, reference = dict[int, ScoringInput](), list[Tensor]()
    for index, states_TD in zip(chosen, own, strict=True):
        if index not in state.targets:
            sample = state.samples[index]
            teachers = tuple(islice(hinted, sample.hints))
            inputs[index] = ScoringInput(sample=sample, states_TD=states_TD, teachers=teachers)
        if state.reference is not None:
            reference.append(next(plain))
    if inputs:
        teacher = None if state.teacher is None else head_of(state.teacher)
        found = targets(state.policy.whole_head(), list(inputs.values()), teacher, state.objective)
        state.targets.update(zip(inputs, found, strict=True))
    if state.reference is None:
        return None
    return Reference(head=head_of(state.reference), states_ND=torch.cat(reference))


def losses(
    state: UpdateState, chosen: Sequence[int], logits: Sequence[Tensor]
) -> tuple[Tensor, Counter[str]]:
    """The part of the chosen turns, whose logits [T, V] these are, in the loss and in each of its terms."""
    hinted, plain = teacher_outputs(state, chosen, stream_logits)
    loss, terms = logits[0].new_zeros(()), Counter[str]()
    for index, logits_TV in zip(chosen, logits, strict=True):
        sample, known = state.samples[index], index in state.targets
        if not known:
            teachers = (each_TV.to(logits_TV.device) for each_TV in islice(hinted, sample.hints))
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
            terms.update(_ratio(now_T[sample.mask_T], sample, target, of=len(state.items)))
    return loss, terms


def _ratio(now_N: Tensor, sample: Sample, target: Target, *, of: int) -> dict[str, float]:
    """One sample's part of the batch's mean pi / pi_old and mean |log pi - log pi_old| of its tokens.

    `now_N` is log pi(y) of the tokens that train.
    """
    apart_N = now_N - target.tokens.old_N[sample.mask_T]
    return {
        "ratio_mean": apart_N.exp().mean().item() / of,
        "ratio_distance": apart_N.abs().mean().item() / of,
    }


def teacher_outputs(
    state: UpdateState, chosen: Sequence[int], stream: Stream
) -> tuple[Iterator[Tensor], Iterator[Tensor]]:
    """The teacher's outputs after each hint of the chosen turns without a target, and the reference's.

    If both are the same model there is one stream, turn by turn, hints first, so that they share prompts.
    """
    hinted = [() if index in state.targets else state.items[index].teachers for index in chosen]
    plain = [() if state.reference is None else (state.items[index].student,) for index in chosen]
    if state.teacher is state.reference:
        together = [hints + own for hints, own in zip(hinted, plain, strict=True)]
        both = _outputs(state, state.teacher, together, stream)
        return both, both
    return _outputs(state, state.teacher, hinted, stream), _outputs(state, state.reference, plain, stream)


def _outputs(
    state: UpdateState, model: PreTrainedModel | None, rows: Sequence[tuple[Row, ...]], stream: Stream
) -> Iterator[Tensor]:
    flat = [row for each in rows for row in each]
    if model is None:
        return iter(())
    return streamed(stream, model, flat, state.limit, state.packing, state.ranks)
