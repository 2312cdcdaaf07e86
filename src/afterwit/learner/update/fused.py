"""A pass with the fused head: the backbone gives states, the head's loss and gradient come chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.fused_head.collect import collect_rows
from afterwit.fused_head.head import Head, HeadGradients
from afterwit.fused_head.loss import FusedLoss, Reference, fused_loss
from afterwit.fused_head.rows import Rows
from afterwit.fused_head.scoring_input import ScoringInput
from afterwit.fused_head.targets import targets
from afterwit.learner.parameters.masters import Masters
from afterwit.learner.scoring.lm_head import head_of
from afterwit.learner.scoring.packing import MicroBatch
from afterwit.learner.scoring.score import response_states, stream_states
from afterwit.learner.scoring.teacher_outputs import views
from afterwit.learner.update import metrics
from afterwit.learner.update.state import UpdateState


def learn(run: UpdateState, each: MicroBatch) -> dict[str, float]:
    """Add one pass over turns to the gradient."""
    chosen = each.chosen
    students = [run.items[index].student for index in chosen]
    states_ND = response_states(run.policy.model, students, packed=each.packed)
    known = [index for index in chosen if index in run.targets]
    base = _prepare(run, chosen, states_ND)
    samples, found = [run.samples[index] for index in chosen], [run.targets[index] for index in chosen]
    learned = _go_back(run, states_ND, collect_rows(samples, found, run.over, run.objective), base)
    return _numbers(learned) | (_ratios(run, chosen, learned.now_N) if known else {})


def _prepare(run: UpdateState, chosen: Sequence[int], states_ND: Tensor) -> Reference | None:
    """The targets of the chosen turns that have none yet; returns the base, where the anchor reads it."""
    teachers, anchors = views(run, chosen, stream_states)
    own = torch.split(states_ND.detach(), [len(run.samples[index].ids_T) for index in chosen])
    inputs, held = dict[int, ScoringInput](), list[Tensor]()
    for index, states_TD in zip(chosen, own, strict=True):
        if index not in run.targets:
            sample = run.samples[index]
            shown = tuple(islice(teachers, sample.hints))
            inputs[index] = ScoringInput(sample=sample, states_TD=states_TD, teachers=shown)
        if run.objective.beta > 0:
            held.append(next(anchors))
    if inputs:
        teacher = None if run.teacher is None else head_of(run.teacher)
        found = targets(_head(run), list(inputs.values()), teacher, run.objective)
        run.targets.update(zip(inputs, found, strict=True))
    return _base(run.base, held) if run.base is not None and held else None


def _base(model: PreTrainedModel, held: Sequence[Tensor]) -> Reference:
    return Reference(head=head_of(model), states_ND=torch.cat(list(held)))


def _go_back(run: UpdateState, states_ND: Tensor, rows: Rows, base: Reference | None) -> FusedLoss:
    """The loss of these rows, its gradient added to the head's and, through the states, to all others."""
    head = _head(run)
    gradients = _gradients(head, run.policy.masters)
    found = fused_loss(head, states_ND.detach(), rows, run.objective, gradients, base=base)
    states_ND.backward(found.grad_states_ND)  # type: ignore[no-untyped-call]
    return found


def _gradients(head: Head, masters: Masters) -> HeadGradients:
    """Where those of the head's parts add up."""
    factors = head.low_rank
    return HeadGradients(
        weight_VD=masters.gradient(head.weight_VD),
        bias_V=masters.gradient(head.bias_V),
        down_RD=masters.gradient(None if factors is None else factors.down_RD),
        up_VR=masters.gradient(None if factors is None else factors.up_VR),
    )


def _head(run: UpdateState) -> Head:
    if run.policy.head is None:
        raise ValueError("the policy's head is not to be fused")
    return run.policy.head


def _numbers(found: FusedLoss) -> dict[str, float]:
    """The terms and the loss. A GPU is waited for once."""
    values = torch.stack([*found.terms.values(), found.loss]).tolist()
    return dict(zip((*found.terms, "loss"), values, strict=True))


def _ratios(run: UpdateState, chosen: Sequence[int], now_N: Tensor) -> dict[str, float]:
    """The parts of these turns in the mean ratios of the batch."""
    samples = [run.samples[index] for index in chosen]
    parts = torch.split(now_N, [int(sample.mask_T.sum()) for sample in samples])
    each = [
        metrics.ratio(now, sample, run.targets[index], of=len(run.items))
        for index, sample, now in zip(chosen, samples, parts, strict=True)
    ]
    return {name: sum(part[name] for part in each) for name in each[0]}
