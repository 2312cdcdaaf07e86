"""RL advantages: the reward less a baseline. Plain floats, one per sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from afterwit.objective.choices import AGGREGATIONS, BASELINES, Rewarded
from afterwit.objective.settings import ObjectiveSettings

if TYPE_CHECKING:
    from afterwit.objective.sample import Sample


class Advantages(NamedTuple):
    """One advantage per sample (`None`: no RL term), and the running mean for the next update."""

    values: tuple[float | None, ...]
    mean: float


def advantages(
    batch: Sequence[Rewarded | None], settings: ObjectiveSettings, *, mean: float = 0.0
) -> Advantages:
    """The advantages of a global batch; `None` for a sample without an RL term.

    `mean` is the running mean before this batch; it starts at 0. ValueError if a reward is not finite.
    """
    for sample in batch:
        if sample is not None and not all(map(math.isfinite, (sample.reward, *sample.group))):
            raise ValueError(f"a reward is {sample.reward} in a group of {list(sample.group)}: not finite")
    baseline = BASELINES[settings.baseline]
    values = tuple(None if sample is None else baseline.advantage(sample, mean) for sample in batch)
    rewards = [sample.reward for sample in batch if sample is not None]
    if baseline.moves_mean and rewards:
        mean = settings.baseline_decay * mean + (1 - settings.baseline_decay) * fmean(rewards)
    return Advantages(values, mean)


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
