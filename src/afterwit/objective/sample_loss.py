"""Phase two, with gradient: the terms, weighted and summed.

    L = w_rl RL + w_opd OPD + combine - c_h H + beta KL(pi || base)

A batch's loss is the sum of its samples' shares, so no split into micro-batches and no packing can change it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from afterwit.objective.logprobs import at, logprobs, same_shape
from afterwit.objective.sample import Denominators, Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.shares import SampleLoss, weighted_mean
from afterwit.objective.target import Target
from afterwit.objective.terms.entropy import entropy
from afterwit.objective.terms.reference_kl import reference_kl
from afterwit.objective.token_targets import term_loss, token_targets


def sample_loss(
    logits_TV: Tensor,
    sample: Sample,
    target: Target,
    over: Denominators,
    settings: ObjectiveSettings,
    *,
    logits_base_TV: Tensor | None = None,
) -> SampleLoss:
    """The share of one sample in the loss of the global batch that `over` counts.

    `logits_TV` are the current policy's. `logits_base_TV` are needed where `beta` is above 0; where they are
    given, the distance is measured whatever its weight.
    """
    if len(logits_TV) != len(sample.ids_T):
        raise ValueError(f"{len(sample.ids_T)} ids but {len(logits_TV)} rows of logits")
    if settings.beta > 0 and logits_base_TV is None:
        raise ValueError(f"beta is {settings.beta}, but the base's logits are missing")
    if logits_base_TV is not None:
        same_shape(logits_TV, "base", logits_base_TV)
    now_TV = logprobs(logits_TV, sample.tau)
    what = token_targets(sample, target, settings)
    now_TJ = at(now_TV, what.read_NJ)
    losses = {term: term_loss(term, now_TJ, what, settings) for term in sample.carries(settings)}
    losses["entropy"] = entropy(_graded(now_TV, settings.c_h))
    if logits_base_TV is not None:
        with torch.no_grad():
            base_TV = logprobs(logits_base_TV, sample.tau)
        losses["reference_kl"] = reference_kl(_graded(now_TV, settings.beta), base_TV)
    return weighted_mean(losses, sample.mask_T, over, settings, zero=now_TJ[:, :0].sum())


def _graded(logprobs_TV: Tensor, weight: float) -> Tensor:
    """The log-probs, without their graph where the weight leaves nothing to learn."""
    return logprobs_TV if weight else logprobs_TV.detach()
