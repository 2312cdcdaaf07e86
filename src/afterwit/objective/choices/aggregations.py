"""What each term of the loss is divided by. `AGGREGATIONS` holds every choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Aggregation = Callable[[Sequence[Sequence[str]], Iterable[str]], dict[str, int]]
"""(the terms of each sample in the global batch, the objective's terms) -> each term's denominator."""


def _component(carried: Sequence[Sequence[str]], terms: Iterable[str]) -> dict[str, int]:
    every = [term for sample in carried for term in sample]
    return {term: every.count(term) for term in terms}


def _batch(carried: Sequence[Sequence[str]], terms: Iterable[str]) -> dict[str, int]:
    return dict.fromkeys(terms, len(carried))


AGGREGATIONS: dict[str, Aggregation] = {"component": _component, "batch": _batch}
"""`component`: a term is divided by the samples that carry it; `batch`: by all of them."""
