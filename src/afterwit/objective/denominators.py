"""What each term of the loss is divided by. `AGGREGATIONS` holds every choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from afterwit.objective.sample import Sample
    from afterwit.objective.settings import ObjectiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """Counts over the global batch, however it is split into micro-batches later."""

    counts: Mapping[str, int]

    def of(self, term: str) -> int:
        """A term's denominator. ValueError if it counts no sample, since then none can carry the term."""
        if (count := self.counts[term]) < 1:
            raise ValueError(f"a sample carries {term}, but its denominator is {count}")
        return count


def denominators(samples: Iterable[Sample], settings: ObjectiveSettings) -> Denominators:
    """The denominators of a global batch. Entropy and reference KL are carried by every sample."""
    batch = list(samples)
    every = dict.fromkeys(("entropy", "reference_kl"), len(batch))
    return Denominators(counts={**every, **AGGREGATIONS[settings.aggregation](batch, settings)})


def _component(batch: Sequence[Sample], settings: ObjectiveSettings) -> dict[str, int]:
    carried = [term for sample in batch for term in sample.carries(settings)]
    return {term: carried.count(term) for term in settings.terms}


def _batch(batch: Sequence[Sample], settings: ObjectiveSettings) -> dict[str, int]:
    return dict.fromkeys(settings.terms, len(batch))


Aggregation = Callable[["Sequence[Sample]", "ObjectiveSettings"], dict[str, int]]

AGGREGATIONS: dict[str, Aggregation] = {"component": _component, "batch": _batch}
"""`component`: a term is divided by the samples that carry it; `batch`: by all of them."""
