"""A sample's share of the batch's loss: its terms, each divided by what the global batch counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from afterwit.objective.sample import Denominators
from afterwit.objective.settings import ObjectiveSettings

TERMS = ("rl", "opd", "combine", "entropy", "reference_kl")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLoss:
    """Over a batch, shares add up to its loss, and to each of `TERMS` before its weight (no gradient)."""

    loss: Tensor
    terms: dict[str, Tensor]


def weighted_mean(
    losses: Mapping[str, Tensor],
    mask_T: Tensor,
    over: Denominators,
    settings: ObjectiveSettings,
    *,
    zero: Tensor,
) -> SampleLoss:
    """The share of a sample with these terms [T]: mean over the tokens that train, divided, weighted, summed.

    `zero` gives each share a graph.
    """
    loss = zero
    terms = dict.fromkeys(TERMS, zero.detach())
    for name, loss_T in losses.items():
        term = loss_T[mask_T].mean() / over.of(name)
        terms[name] = term.detach()
        loss = loss + settings.weights[name] * term
    return SampleLoss(loss=loss, terms=terms)
