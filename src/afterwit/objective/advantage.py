"""RL advantages: the reward less a baseline. Plain floats, one per sample. `BASELINES` holds every choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from afterwit.objective.settings import ObjectiveSettings


class Rewarded(NamedTuple):
    """A sample's reward and what its baseline reads."""

    reward: float
    group: Sequence[float] = ()
    """The rewards of all judged samples of the prompt, this one and zeros included; `()`: no group."""


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
    return Advantages(values, _next_mean(batch, mean, settings))


def _none(sample: Rewarded, mean: float) -> float:
    return sample.reward


def _running(sample: Rewarded, mean: float) -> float:
    return sample.reward - mean


def _group(sample: Rewarded, mean: float) -> float:
    """(r - mean) / standard deviation (n - 1) of the group (GRPO, Shao et al. 2024).

    A sample without company keeps its reward. A group whose rewards agree says nothing: 0.
    """
    if len(sample.group) < 2:
        return sample.reward
    spread = stdev(sample.group)
    return (sample.reward - fmean(sample.group)) / spread if spread > 0 else 0.0


def _next_mean(batch: Sequence[Rewarded | None], mean: float, settings: ObjectiveSettings) -> float:
    rewards = [sample.reward for sample in batch if sample is not None]
    if not BASELINES[settings.baseline].moves_mean or not rewards:
        return mean
    return settings.baseline_decay * mean + (1 - settings.baseline_decay) * fmean(rewards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One value of the setting `baseline`."""

    advantage: Callable[[Rewarded, float], float]
    """(sample, running mean) -> advantage."""
    reads_group: bool = False
    """Whether the rewards of the prompt's other samples are read."""
    moves_mean: bool = False
    """Whether the batch's rewards move the running mean."""


BASELINES = {
    "none": Baseline(advantage=_none),
    "running": Baseline(advantage=_running, moves_mean=True),
    "group": Baseline(advantage=_group, reads_group=True),
}
