"""How many samples of a global batch each term of the loss is a mean over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from afterwit.objective.choices.aggregations import AGGREGATIONS
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
    carried = [settings.terms_of(sample.carried) for sample in samples]
    every = dict.fromkeys(("entropy", "reference_kl"), len(carried))
    return Denominators(counts={**every, **AGGREGATIONS[settings.aggregation](carried, settings.terms)})
