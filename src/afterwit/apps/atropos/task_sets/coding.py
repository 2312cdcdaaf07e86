"""Coding tasks in boxes: the built-in ones, or those of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from afterwit.apps.atropos.agent import AgentLimits, Played, Policy, play
from afterwit.apps.atropos.reward import RewardWeights
from afterwit.apps.atropos.tasks import Task
from afterwit.apps.sandbox.box import Walls
from afterwit.core.errors import SettingError


class CodingTasks:
    """Implements `TaskSet`."""

    def __init__(
        self,
        tasks: Sequence[Task],
        walls: Walls,
        *,
        limits: AgentLimits,
        weights: RewardWeights,
        system: str,
        held_out: int,
        seed: int,
    ) -> None:
        """`held_out`: how many tasks only measure, drawn by the seed. SettingError if none is left."""
        drawn = Random(seed).sample(list(tasks), len(tasks))
        if not 0 < held_out < len(drawn):
            raise SettingError(
                f"{held_out} of {len(drawn)} tasks would be held out, but there must be some of both: "
                "set eval_size and eval_split_ratio"
            )
        self.held_out, self.training = tuple(drawn[:held_out]), tuple(drawn[held_out:])
        self._walls, self._limits, self._weights, self._system = walls, limits, weights, system

    async def play(self, item: Task, policy: Policy, *, measuring: bool) -> Played:
        return await play(
            item, policy, self._walls, limits=self._limits, weights=self._weights, system=self._system
        )
