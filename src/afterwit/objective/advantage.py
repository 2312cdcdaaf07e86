"""RL advantages: the reward, less a baseline if one is set. Plain floats, one per sample."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from afterwit.objective.settings import ObjectiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    """One advantage per sample (`None`: no RL term) and the running mean to hand to the next update."""

    values: tuple[float | None, ...]
    mean: float


def advantages(
    rewards: Sequence[float | None],
    groups: Sequence[Hashable | None],
    settings: ObjectiveSettings,
    *,
    mean: float = 0.0,
) -> Advantages:
    """The advantages of a global batch.

    `rewards[n]` is `None` where sample n carries no RL term; such a sample enters no baseline either.
    `groups[n]` names the prompt that several samples share. `mean` is the running mean before this batch; it
    starts at 0.
    """
    if len(rewards) != len(groups):
        raise ValueError(f"{len(rewards)} rewards but {len(groups)} groups")
    if settings.baseline == "group":
        return Advantages(values=_z_scores(rewards, groups), mean=mean)
    if settings.baseline == "running":
        shifted = tuple(None if r is None else r - mean for r in rewards)
        return Advantages(values=shifted, mean=_next_mean(rewards, mean, settings.baseline_decay))
    return Advantages(values=tuple(rewards), mean=mean)


def _next_mean(rewards: Sequence[float | None], mean: float, decay: float) -> float:
    seen = [r for r in rewards if r is not None]
    return decay * mean + (1 - decay) * fmean(seen) if seen else mean


def _z_scores(rewards: Sequence[float | None], groups: Sequence[Hashable | None]) -> tuple[float | None, ...]:
    """(r - mean) / standard deviation (n - 1) within a group (GRPO, Shao et al. 2024).

    A sample without company keeps its reward; a group whose rewards agree says nothing: 0.
    """
    members: dict[Hashable, list[float]] = defaultdict(list)
    for reward, group in zip(rewards, groups, strict=True):
        if reward is not None and group is not None:
            members[group].append(reward)
    return tuple(
        reward if reward is None or group is None else _z_score(reward, members[group])
        for reward, group in zip(rewards, groups, strict=True)
    )


def _z_score(reward: float, company: list[float]) -> float:
    if len(company) < 2:
        return reward
    spread = stdev(company)
    return (reward - fmean(company)) / spread if spread > 0 else 0.0
