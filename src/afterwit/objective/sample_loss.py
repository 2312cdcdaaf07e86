"""Phase two, with gradient: the terms, weighted and summed.

    L = w_rl RL + w_opd OPD + combine - entropy_coef H + beta KL(pi || reference)

A batch's loss is the sum of its samples' parts, so no split into micro-batches and no packing changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.objective.advantage import Denominators
from afterwit.objective.choices import TERMS
from afterwit.objective.logprobs import at as at_ids
from afterwit.objective.logprobs import entropy, logprobs, reference_kl, same_shape
from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target, candidates_of_rows, target_of
from afterwit.objective.terms import term_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLoss:
    """One sample's part of the batch's loss. Parts add up, and so do the terms."""

    loss: Tensor
    terms: dict[str, Tensor]
    """Each of `TERMS` before its weight, without gradient."""


def sample_loss(
    logits_TV: Tensor,
    sample: Sample,
    target: Target,
    over: Denominators,
    settings: ObjectiveSettings,
    *,
    logits_reference_TV: Tensor | None = None,
) -> SampleLoss:
    """The part of one sample in the loss of the global batch that `over` counts.

    `logits_TV` are the current policy's. `logits_reference_TV` are needed if `beta` is above 0; if they are
    given, the KL to the reference is measured whatever its weight.
    """
    if len(logits_TV) != len(sample.ids_T):
        raise ValueError(f"{len(sample.ids_T)} ids but {len(logits_TV)} rows of logits")
    if settings.beta > 0 and logits_reference_TV is None:
        raise ValueError(f"beta is {settings.beta}, but the reference's logits are missing")
    if logits_reference_TV is not None:
        same_shape(logits_TV, "reference", logits_reference_TV)
    now_TV = logprobs(logits_TV, sample.tau)
    now_TJ = at_ids(now_TV, target.tokens.read_NJ)
    names = settings.terms_of(sample.carried)
    losses = {name: term_loss(name, now_TJ, target.tokens, settings) for name in names}
    losses["entropy"] = entropy(now_TV if settings.entropy_coef else now_TV.detach())
    if logits_reference_TV is not None:
        with torch.no_grad():
            reference_TV = logprobs(logits_reference_TV, sample.tau)
        losses["reference_kl"] = reference_kl(now_TV if settings.beta else now_TV.detach(), reference_TV)
    return weighted(losses, sample, over, settings, zero=now_TJ[:, :0].sum())


def loss_at(
    sample: Sample,
    over: Denominators,
    settings: ObjectiveSettings,
    *,
    at: Callable[[Tensor, float], Tensor],
    top_k: Callable[[int], Tensor],
) -> SampleLoss:
    """As `sample_loss` of a sample whose teachers ran elsewhere, for logits that no process holds whole.

    They are the old policy's too. `at` gives their log-probs at ids [T, J] or [T] and a temperature, with the
    gradient; `top_k` the ids [T, K] of the largest.
    """
    with torch.no_grad():
        old_T, found = at(sample.ids_T, sample.tau), None
        if settings.has_opd and sample.taught:
            student_TK = top_k(settings.ids_kept)
            found = candidates_of_rows(
                sample.teacher_rows, student_TK, old_T, lambda ids: at(ids, sample.tau)
            )
        targets = target_of(sample, old_T, found, settings, lambda: at(sample.ids_T, 1.0)).tokens
    now_TJ = at(targets.read_NJ, sample.tau)
    losses = {name: term_loss(name, now_TJ, targets, settings) for name in settings.terms_of(sample.carried)}
    return weighted(losses, sample, over, settings, zero=now_TJ[:, :0].sum())


def weighted(
    losses: Mapping[str, Tensor],
    sample: Sample,
    over: Denominators,
    settings: ObjectiveSettings,
    *,
    zero: Tensor,
) -> SampleLoss:
    """A sample's loss of its terms [T]: each the mean over its tokens, divided and weighted. `zero` gives
    every sample a graph."""
    loss = zero
    terms = dict.fromkeys(TERMS, zero.detach())
    for name, loss_T in losses.items():
        mask_T = sample.mask_of(name)
        term = (token_weights(sample, name, over, loss_T.detach()) * loss_T)[mask_T].sum()
        terms[name] = term.detach()
        loss = loss + settings.weights[name] * term
    return SampleLoss(loss=loss, terms=terms)


def token_weights(sample: Sample, term: str, over: Denominators, like_T: Tensor) -> Tensor:
    """The weight [T] of each token in a term of the batch: the mean over the sample's tokens, divided by the
    term's denominator. ValueError if that is 0: then no sample can carry the term."""
    if over[term] < 1:
        raise ValueError(f"a sample carries {term}, but its denominator is {over[term]}")
    mask_T = sample.mask_of(term)
    return mask_T.to(like_T.dtype) / (mask_T.sum() * over[term])
