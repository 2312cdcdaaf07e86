"""`--custom-loss-function-path`: the objective on logits whose vocabulary is shared out (tensor parallel)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from afterwit.objective.sample import Sample
from afterwit.objective.sample_loss import SampleLoss, weighted
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import (
    HintTargets,
    Target,
    candidates_of_rows,
    hint_targets_of,
    token_targets,
    truncated_weight,
)
from afterwit.objective.terms import term_loss
from afterwit_hosts.slime.data import lesson_of
from afterwit_hosts.slime.lesson import Lesson
from afterwit_hosts.slime.shards import Shards


def loss(
    args: Any, batch: Mapping[str, Any], logits: Tensor, sum_of_sample_mean: Callable[[Tensor], Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """A micro-batch's loss and the terms to log, as slime takes them.

    `logits` are [1, T, V / tensor parallel]. slime divides by the global batch, and our denominators
    are of the whole batch already: so both are multiplied by it here.
    """
    from megatron.core import mpu
    from slime.backends.megatron_utils.loss import get_responses

    responses = get_responses(
        logits,
        args=args,
        unconcat_tokens=batch["unconcat_tokens"],
        total_lengths=batch["total_lengths"],
        response_lengths=batch["response_lengths"],
        apply_temperature=False,  # each turn has its own, by which the objective divides
    )
    whole, terms = logits.new_zeros(()), Counter[str]()
    for tokens, (logits_TW, _) in zip(batch["unconcat_tokens"], responses, strict=True):
        lesson = lesson_of(tokens)
        part = lesson_loss(
            logits_TW, lesson, Shards(mpu.get_tensor_model_parallel_group(), lesson.batch.vocabulary)
        )
        whole = whole + part.loss
        terms.update({name: value.item() for name, value in part.terms.items()})
    scale = args.global_batch_size
    log = {name: logits.new_tensor(value * scale) for name, value in terms.items()}
    return whole * scale, {"loss": whole.detach() * scale, **log}


def lesson_loss(logits_TW: Tensor, lesson: Lesson, shards: Shards) -> SampleLoss:
    """The part of one response in the loss of its batch; these weights are the old policy too."""
    settings = lesson.batch.objective
    sample = lesson.sample(logits_TW)
    target = target_of(sample, logits_TW.detach(), shards, settings)
    targets = token_targets(sample, target, settings)
    now_TJ = shards.at(logits_TW, targets.read_NJ, sample.tau)
    losses = {term: term_loss(term, now_TJ, targets, settings) for term in settings.terms_of(sample.carried)}
    return weighted(losses, sample, lesson.batch.over, settings, zero=now_TJ[:, :0].sum())


@torch.no_grad()
def target_of(sample: Sample, logits_TW: Tensor, shards: Shards, settings: ObjectiveSettings) -> Target:
    """As `objective.target.prepare` makes it of whole logits, for a teacher whose rows are given."""
    old_T = shards.at(logits_TW, sample.ids_T, sample.tau)
    mismatch_T, weight_T = None, torch.ones_like(old_T)
    if sample.behaviour_T is not None:
        raw = sample.basis == "raw"
        compared_T = shards.at(logits_TW, sample.ids_T, 1.0) if raw else old_T
        mismatch_T = compared_T - sample.behaviour_T
        weight_T = truncated_weight(mismatch_T, settings.is_cap)
    hint_targets = None
    if settings.has_opd and sample.taught:
        hint_targets = _hint_targets(sample, logits_TW, old_T, shards, settings)
    return Target(old_T=old_T, mismatch_T=mismatch_T, weight_T=weight_T, hint_targets=hint_targets)


def _hint_targets(
    sample: Sample, logits_TW: Tensor, old_T: Tensor, shards: Shards, settings: ObjectiveSettings
) -> HintTargets:
    old_at = partial(shards.at, logits_TW, tau=sample.tau)
    student_TK = shards.top_k(logits_TW, settings.ids_kept)
    found = candidates_of_rows(
        sample.teacher_rows,
        student_ids_TK=student_TK,
        student_old_TK=old_at(student_TK),
        old_T=old_T,
        old_at=old_at,
    )
    return hint_targets_of(sample, found, old_T, settings)
