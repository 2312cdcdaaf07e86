"""What is taken off a reward. `BASELINES` holds every choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple


class Rewarded(NamedTuple):
    """A sample's reward and what its baseline reads."""

    reward: float
    group: Sequence[float] = ()
    """The rewards of all judged samples of the prompt, this one and zeros included; `()`: no group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One value of the setting `baseline`."""

    advantage: Callable[[Rewarded, float], float]
    """(sample, running mean) -> advantage."""
    reads_group: bool = False
    """Whether the rewards of the prompt's other samples are read."""
    moves_mean: bool = False
    """Whether the batch's rewards move the running mean."""


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


BASELINES = {
    "none": Baseline(advantage=_none),
    "running": Baseline(advantage=_running, moves_mean=True),
    "group": Baseline(advantage=_group, reads_group=True),
}
