"""A micro-batch with the fused head: the backbone gives states, the head loss and gradient, by chunks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from afterwit.fused_head.head import Head, HeadGradients
from afterwit.fused_head.loss import FusedLoss, Reference, fused_loss
from afterwit.fused_head.score import Rows
from afterwit.fused_head.targets import ScoringInput, collect_rows, targets
from afterwit.learning import metrics
from afterwit.learning.distributed.ranks import NOTHING
from afterwit.learning.optimizer import Masters
from afterwit.learning.rows import MicroBatch
from afterwit.learning.score import head_of, response_states, stream_states
from afterwit.learning.update_state import UpdateState, teacher_outputs


def accumulate(state: UpdateState, micro_batch: MicroBatch) -> dict[str, float]:
    """Add a micro-batch to the gradient; returns its part of the loss and of each term."""
    chosen = micro_batch.chosen
    known = [index for index in chosen if index in state.targets]
    states_ND = _states(state, micro_batch)
    reference = _prepare_targets(state, chosen, states_ND.detach())
    samples, found = [state.samples[index] for index in chosen], [state.targets[index] for index in chosen]
    rows = collect_rows(samples, found, state.over, state.objective)
    loss = _backward(state, states_ND, rows, reference)
    return _numbers(loss) | (_ratios(state, chosen, loss.now_N) if known else {})


def accumulate_nothing(state: UpdateState) -> None:
    """Run the models as `accumulate` of other ranks does, with gradients of 0."""
    states_ND = response_states(state.policy.model, [NOTHING])
    teacher_outputs(state, (), stream_states)
    (states_ND.sum() * 0).backward()  # type: ignore[no-untyped-call]


@torch.no_grad()
def score(state: UpdateState, micro_batch: MicroBatch) -> None:
    """Fill the targets of a micro-batch, and learn nothing."""
    _prepare_targets(state, micro_batch.chosen, _states(state, micro_batch))


def _states(state: UpdateState, micro_batch: MicroBatch) -> Tensor:
    students = [state.items[index].student for index in micro_batch.chosen]
    return response_states(state.policy.model, students, packed=micro_batch.packed)


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
        found = targets(_head(state), list(inputs.values()), teacher, state.objective)
        state.targets.update(zip(inputs, found, strict=True))
    if state.reference is None:
        return None
    return Reference(head=head_of(state.reference), states_ND=torch.cat(reference))


def _backward(state: UpdateState, states_ND: Tensor, rows: Rows, reference: Reference | None) -> FusedLoss:
    """The loss of these rows; its gradient is added to the head's and, through the states, to all others."""
    head = _head(state)
    gradients = _gradients(head, state.policy.masters)
    loss = fused_loss(head, states_ND.detach(), rows, state.objective, gradients, reference=reference)
    states_ND.backward(loss.grad_states_ND)  # type: ignore[no-untyped-call]
    return loss


def _gradients(head: Head, masters: Masters) -> HeadGradients:
    """Where the gradients of the head's parts add up."""
    factors = head.low_rank
    return HeadGradients(
        weight_VD=masters.gradient(head.weight_VD),
        bias_V=masters.gradient(head.bias_V),
        down_RD=masters.gradient(None if factors is None else factors.down_RD),
        up_VR=masters.gradient(None if factors is None else factors.up_VR),
    )


def _head(state: UpdateState) -> Head:
    return state.policy.whole_head()


def _numbers(loss: FusedLoss) -> dict[str, float]:
    """The terms and the loss, fetched together, so that a GPU is waited for once."""
    values = torch.stack([*loss.terms.values(), loss.loss]).tolist()
    return dict(zip((*loss.terms, "loss"), values, strict=True))


def _ratios(state: UpdateState, chosen: Sequence[int], now_N: Tensor) -> dict[str, float]:
    """These turns' parts of the batch's mean ratios."""
    samples = [state.samples[index] for index in chosen]
    parts = torch.split(now_N, [int(sample.mask_T.sum()) for sample in samples])
    each = [
        metrics.ratio(now, sample, state.targets[index], of=len(state.items))
        for index, sample, now in zip(chosen, samples, parts, strict=True)
    ]
    return {name: sum(part[name] for part in each) for name in each[0]}
