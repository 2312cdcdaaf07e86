"""Samples, whose hidden states lie one after the other in a pass, become its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from afterwit.fused_head.rows import Rows, blank, chosen, joined
from afterwit.objective.sample import Denominators, Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target
from afterwit.objective.token_targets import TokenTargets, token_targets


def collect_rows(
    samples: Sequence[Sample], targets: Sequence[Target], over: Denominators, settings: ObjectiveSettings
) -> Rows:
    """The rows of turns. ValueError where a sample carries a term that `over` does not count."""
    parts = [token_targets(*pair, settings) for pair in zip(samples, targets, strict=True)]
    masks, whole = [sample.mask_T for sample in samples], over.of("entropy")
    tau_N = [torch.full_like(part.old_N, sample.tau) for sample, part in zip(samples, parts, strict=True)]
    dense_N = [_spread(mask_T, whole, part.old_N) for mask_T, part in zip(masks, parts, strict=True)]
    weights = [_weights(*pair, over, settings) for pair in zip(samples, parts, strict=True)]
    at_N = torch.cat(masks).nonzero().squeeze(-1)
    return Rows(
        at_N=at_N,
        tau_N=torch.cat(tau_N)[at_N],
        dense_N=torch.cat(dense_N)[at_N],
        taught=chosen(joined(_with_kept(parts)), at_N),
        weights=chosen(joined(weights), at_N),
    )


def _weights(
    sample: Sample, what: TokenTargets, over: Denominators, settings: ObjectiveSettings
) -> dict[str, Tensor]:
    """The weight of each token in each term."""
    none = dict.fromkeys(settings.terms, torch.zeros_like(what.old_N))
    return none | {
        term: _spread(sample.mask_T, over.of(term), what.old_N) for term in sample.carries(settings)
    }


def _with_kept(parts: Sequence[TokenTargets]) -> list[TokenTargets]:
    """All with kept ids if any has them; those of a sample without a lesson teach nothing."""
    kept = next((part.kept for part in parts if part.kept is not None), None)
    return [part if part.kept else replace(part, kept=blank(kept, len(part.ids_N))) for part in parts]


def _spread(mask_T: Tensor, over: int, like_T: Tensor) -> Tensor:
    """The weight of each token in the mean over those that train, divided by the term's denominator."""
    return mask_T.to(like_T.dtype) / (mask_T.sum() * over)
