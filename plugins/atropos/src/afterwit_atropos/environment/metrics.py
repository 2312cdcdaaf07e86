"""The environment's metrics, under the published names, and where they are written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from afterwit.api.turns import Reason
from afterwit_atropos.reward import Reward
from afterwit_atropos.rollout import ScoredRollout

LINES = "metrics.jsonl"

PARTS = ("correctness", "efficiency", "tool_usage")


@dataclass(slots=True)
class RolloutMetrics:
    """Of the rollouts since the last ones were logged."""

    rewards: list[Reward] = field(default_factory=list)
    hints: list[int] = field(default_factory=list)
    """Turns of a rollout that a hint was found for."""
    scored: list[int] = field(default_factory=list)
    """Turns of a rollout that have teacher rows."""
    unscored: Counter[Reason] = field(default_factory=Counter)
    lost_groups: int = 0
    """Groups that were not sent, because a rollout failed."""
    silent_groups: int = 0
    """Groups that were not sent, because all rewards were equal and no turn had a row."""

    def add(self, reward: Reward, scored: ScoredRollout | None) -> None:
        """Count a rollout; None: hindsight is off."""
        self.rewards.append(reward)
        if scored is not None:
            hinted = [turn for turn in scored.turns if turn.verdict is not None and turn.verdict.hints]
            self.hints.append(len(hinted))
            self.scored.append(len(scored.scored))
            self.unscored += scored.unscored

    def values(self) -> dict[str, float]:
        """The metrics by their names; none of what was not measured."""
        found: dict[str, float] = {}
        if self.rewards:
            found |= {"train/mean_reward": fmean(reward.total for reward in self.rewards)}
            found |= {
                f"train/mean_{part}": fmean(getattr(reward, part) for reward in self.rewards)
                for part in PARTS
            }
            found["train/pass_rate"] = fmean(reward.passed for reward in self.rewards)
            found["train/total_rollouts"] = len(self.rewards)
            found["train/lost_groups"] = self.lost_groups
            found["train/silent_groups"] = self.silent_groups
        if self.hints:
            found["opd/mean_hints_per_rollout"] = fmean(self.hints)
            found["opd/mean_turns_scored"] = fmean(self.scored)
            found["opd/hint_rate"] = fmean(hints > 0 for hints in self.hints)
            found["opd/total_hints"] = sum(self.hints)
            found["opd/total_scored_turns"] = sum(self.scored)
            found |= {f"opd/unscored_{reason}": count for reason, count in self.unscored.items()}
        return found


def evaluated(rewards: Sequence[Reward]) -> dict[str, float]:
    """The metrics of an evaluation."""
    found: dict[str, float] = {"eval/n_items": len(rewards)}
    if rewards:
        found["eval/mean_correctness"] = fmean(reward.correctness for reward in rewards)
        found["eval/mean_reward"] = fmean(reward.total for reward in rewards)
        found["eval/pass_rate"] = fmean(reward.passed for reward in rewards)
    return found


class Board:
    """Writes numbers by their names into a folder; None: nowhere."""

    def __init__(self, folder: str | None) -> None:
        self._writer: Any = None
        if folder is not None:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(folder)
            self._lines = (Path(folder) / LINES).open("a", encoding="utf-8")

    def add(self, values: Mapping[str, float], step: int) -> None:
        if self._writer is None or not values:
            return
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()
        print(json.dumps({"step": step, **values}), file=self._lines, flush=True)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._lines.close()
