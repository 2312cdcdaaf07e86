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
from afterwit.objective.taught import Taught, taught


def turn_rows(
    samples: Sequence[Sample], targets: Sequence[Target], over: Denominators, settings: ObjectiveSettings
) -> Rows:
    """The rows of turns. ValueError where a sample carries a term that `over` does not count."""
    parts = [taught(*pair, settings) for pair in zip(samples, targets, strict=True)]
    masks, whole = [sample.mask_T for sample in samples], over.of("entropy")
    return _live(
        masks,
        [torch.full_like(part.old_N, sample.tau) for sample, part in zip(samples, parts, strict=True)],
        [_spread(mask_T, whole, part.old_N) for mask_T, part in zip(masks, parts, strict=True)],
        joined(_with_kept(parts)),
        joined([_weights(*pair, over, settings) for pair in zip(samples, parts, strict=True)]),
    )


def memory_rows(
    masks: Sequence[Tensor], taus: Sequence[float], over: Denominators, dtype: torch.dtype
) -> Rows:
    """The rows of memory samples."""
    each_tau = [torch.full_like(mask_T, tau, dtype=dtype) for mask_T, tau in zip(masks, taus, strict=True)]
    weights = [
        _spread(mask_T, over.of("memory"), tau_T) for mask_T, tau_T in zip(masks, each_tau, strict=True)
    ]
    return _live(masks, each_tau, weights, None, {})


def _live(
    masks: Sequence[Tensor],
    taus: Sequence[Tensor],
    wholes: Sequence[Tensor],
    what: Taught | None,
    weights: dict[str, Tensor],
) -> Rows:
    """The rows that train of all these."""
    at_N = torch.cat(list(masks)).nonzero().squeeze(-1)
    tau_N, whole_N = torch.cat(list(taus))[at_N], torch.cat(list(wholes))[at_N]
    return Rows(
        at_N=at_N, tau_N=tau_N, whole_N=whole_N, taught=chosen(what, at_N), weights=chosen(weights, at_N)
    )


def _weights(
    sample: Sample, what: Taught, over: Denominators, settings: ObjectiveSettings
) -> dict[str, Tensor]:
    """The weight of each token in each term."""
    none = dict.fromkeys(settings.terms, torch.zeros_like(what.old_N))
    return none | {
        term: _spread(sample.mask_T, over.of(term), what.old_N) for term in sample.carries(settings)
    }


def _with_kept(parts: Sequence[Taught]) -> list[Taught]:
    """All with kept ids if any has them; those of a sample without a lesson teach nothing."""
    kept = next((part.kept for part in parts if part.kept is not None), None)
    return [part if part.kept else replace(part, kept=blank(kept, len(part.ids_N))) for part in parts]


def _spread(mask_T: Tensor, over: int, like_T: Tensor) -> Tensor:
    """The weight of each token in the mean over those that train, divided by the term's denominator."""
    return mask_T.to(like_T.dtype) / (mask_T.sum() * over)
