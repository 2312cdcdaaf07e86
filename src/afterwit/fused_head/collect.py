"""From samples, whose hidden states lie one after the other in a micro-batch, to the rows that train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from afterwit.fused_head.rows import Rows, joined, select, zeros
from afterwit.objective.denominators import Denominators
from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target, token_targets
from afterwit.objective.token_targets import TokenTargets


def collect_rows(
    samples: Sequence[Sample], targets: Sequence[Target], over: Denominators, settings: ObjectiveSettings
) -> Rows:
    """The rows that train. ValueError if a sample carries a term that `over` does not count."""
    parts = [token_targets(*pair, settings) for pair in zip(samples, targets, strict=True)]
    pairs = list(zip(samples, parts, strict=True))
    tau_N = torch.cat([torch.full_like(part.old_N, sample.tau) for sample, part in pairs])
    dense_N = torch.cat([_weight(sample.mask_T, over.of("entropy"), part.old_N) for sample, part in pairs])
    at_N = torch.cat([sample.mask_T for sample in samples]).nonzero().squeeze(-1)
    return Rows(
        at_N=at_N,
        tau_N=tau_N[at_N],
        dense_N=dense_N[at_N],
        targets=select(joined(_all_with_kept(parts)), at_N),
        weights={name: each_N[at_N] for name, each_N in _sparse_weights(pairs, over, settings).items()},
    )


def _sparse_weights(
    pairs: Sequence[tuple[Sample, TokenTargets]], over: Denominators, settings: ObjectiveSettings
) -> dict[str, Tensor]:
    """The weight of each token in each term that a sample carries; 0 for a sample without the term."""
    carried = [settings.terms_of(sample.carried) for sample, _ in pairs]
    names = [name for name in settings.terms if any(name in terms for terms in carried)]
    return {
        name: torch.cat(
            [
                _weight(sample.mask_of(name), over.of(name), part.old_N)
                if name in terms
                else torch.zeros_like(part.old_N)
                for (sample, part), terms in zip(pairs, carried, strict=True)
            ]
        )
        for name in names
    }


def _all_with_kept(parts: Sequence[TokenTargets]) -> list[TokenTargets]:
    """All with kept ids if any has them; those of a sample without a hint are zeros, which no term reads."""
    kept = next((part.kept for part in parts if part.kept is not None), None)
    return [part if part.kept else replace(part, kept=zeros(kept, len(part.ids_N))) for part in parts]


def _weight(mask_T: Tensor, over: int, like_T: Tensor) -> Tensor:
    """The weight of each token in the mean over those of the mask, divided by the term's denominator."""
    return mask_T.to(like_T.dtype) / (mask_T.sum() * over)
