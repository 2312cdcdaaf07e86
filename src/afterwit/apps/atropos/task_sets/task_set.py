"""What a set of tasks is to the environment: items to play, and how one is played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from afterwit.apps.atropos.agent.policy import Policy
from afterwit.apps.atropos.reward import Reward
from afterwit.core.rollout import Rollout


class Attempt(Protocol):
    """One item as a policy did it."""

    @property
    def rollout(self) -> Rollout:
        """As it was recorded; what came of the task is the next state of its last turn."""

    @property
    def reward(self) -> Reward: ...


class TaskSet(Protocol):
    """Items of any type; the environment only hands them back."""

    @property
    def training(self) -> Sequence[Any]:
        """What is trained on, in the order in which it is played, again and again."""

    @property
    def held_out(self) -> Sequence[Any]:
        """What only measures."""

    async def play(self, item: Any, policy: Policy, *, measuring: bool) -> Attempt:
        """Let a policy do an item; `measuring`: nobody helps it.

        Raises EngineError, RequestError and what the tasks themselves raise; then the item's group is lost.
        """
