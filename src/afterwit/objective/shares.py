"""A sample's share of the batch's loss: its terms, each divided by what the global batch counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

TERMS = ("rl", "opd", "entropy", "kl_base", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Over a batch, shares add up to its loss, and to each of `TERMS` before its weight (no gradient)."""

    loss: Tensor
    terms: dict[str, Tensor]


class Part(NamedTuple):
    """One term of one sample."""

    name: str
    weight: float
    over: int
    """The term's denominator."""
    loss_T: Tensor | None
    """`None`: the sample does not carry the term."""


def fold(parts: Iterable[Part], mask_T: Tensor, *, zero: Tensor) -> Share:
    """Mean over the tokens that train, divided, weighted, summed. `zero` gives each share a graph."""
    loss = zero
    terms = dict.fromkeys(TERMS, zero.detach())
    for part in parts:
        if part.loss_T is None:
            continue
        if part.over < 1:
            raise ValueError(f"a sample carries {part.name}, but its denominator is {part.over}")
        term = part.loss_T[mask_T].mean() / part.over
        terms[part.name] = term.detach()
        loss = loss + part.weight * term
    return Share(loss=loss, terms=terms)
