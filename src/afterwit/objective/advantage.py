"""RL advantages, and what each term is divided by: plain numbers over a global batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from afterwit.objective.choices import AGGREGATIONS, BASELINES, Rewarded
from afterwit.objective.settings import ObjectiveSettings

if TYPE_CHECKING:
    from afterwit.objective.sample import Sample

Denominators = Mapping[str, int]
"""Term -> its count over the global batch, however that is split into micro-batches later."""


class Advantages(NamedTuple):
    """One advantage per sample (`None`: no RL term), and the running mean for the next update."""

    values: tuple[float | None, ...]
    mean: float


def advantages(
    batch: Sequence[Rewarded | None], settings: ObjectiveSettings, *, mean: float = 0.0
) -> Advantages:
    """The rewards of a global batch less their baseline; `None` for a sample without an RL term or signal.

    `mean` is the running mean before this batch; it starts at 0. ValueError if a reward is not finite.
    """
    carried = [sample for sample in batch if sample is not None]
    for sample in carried:
        if not all(map(math.isfinite, (sample.reward, *sample.group))):
            raise ValueError(f"a reward is {sample.reward} in a group of {list(sample.group)}: not finite")
    baseline = BASELINES[settings.baseline]
    values = tuple(None if sample is None else baseline.advantage(sample, mean) for sample in batch)
    if baseline.moves_mean and carried:
        rewards = fmean(sample.reward for sample in carried)
        mean = settings.baseline_decay * mean + (1 - settings.baseline_decay) * rewards
    return Advantages(values, mean)


def denominators(samples: Iterable[Sample], settings: ObjectiveSettings) -> Denominators:
    """The denominators of a global batch. Entropy and reference KL are carried by every sample."""
    carried = [settings.terms_of(sample.carried) for sample in samples]
    every = dict.fromkeys(("entropy", "reference_kl"), len(carried))
    return {**every, **AGGREGATIONS[settings.aggregation](carried, settings.terms)}
