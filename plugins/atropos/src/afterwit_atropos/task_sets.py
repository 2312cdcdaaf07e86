"""Coding tasks in boxes: the built-in ones, or those of a data set."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from afterwit.api.turns import Feedback, Message, SettingError
from afterwit.api.worlds import Split, TaskState, World
from afterwit.api.worlds import Task as WorldTask
from afterwit_atropos.agent import AgentLimits, Episode, Played, play
from afterwit_atropos.policy import Policy
from afterwit_atropos.reward import Reward, RewardWeights, efficiency
from afterwit_atropos.rollout import Rollout
from afterwit_atropos.sandbox.isolation import Isolation
from afterwit_atropos.tasks import Task

PEOPLE: Split = "dev"
"""The wordings of people while the policy learns, and while it is measured."""

MEASURE: Split = "fresh"

KEPT_ALONE = 0.5
"""Correctness of a task whose checks pass, but not the person's way."""


class CodingTasks:
    """Implements `TaskSet`."""

    def __init__(
        self,
        tasks: Sequence[Task],
        walls: Isolation,
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
        """Training items in playing order, repeated."""

    @property
    def held_out(self) -> Sequence[Any]:
        """Items for measurement only."""

    async def play(self, item: Any, policy: Policy, *, measuring: bool) -> Attempt:
        """Let a policy do an item; with `measuring` it gets no help.

        Raises EngineError, RequestError and what the tasks themselves raise; then the item's group is lost.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldAttempt:
    """One task as it was done."""

    rollout: Rollout
    reward: Reward


class WorldTasks:
    """Implements `TaskSet`. Tasks are drawn once; those that measure have names and wordings of their own."""

    def __init__(
        self,
        world: World,
        *,
        training: int,
        held_out: int,
        max_turns: int,
        weights: RewardWeights,
        seed: int,
    ) -> None:
        rng, other = Random(seed), Random(f"held out {seed}")
        self.training: Sequence[WorldTask] = tuple(world.task(PEOPLE, rng) for _ in range(training))
        self.held_out: Sequence[WorldTask] = tuple(world.task(MEASURE, other) for _ in range(held_out))
        self._world, self._max_turns, self._weights = world, max_turns, weights
        self._said = Random(f"said {seed}")

    async def play(self, item: WorldTask, policy: Policy, *, measuring: bool) -> WorldAttempt:
        opening = (
            Message(role="system", content=self._world.system),
            Message(role="user", content=item.request),
        )
        episode = Episode(opening, self._world.tools, policy, now=time.time, entropy=secrets.token_bytes)
        with self._world.start(item) as state:
            await self._work(episode, state, watched=not measuring)
            failed = await asyncio.to_thread(state.check)
            reward = self._reward(episode, state, failed)
            words = self._reaction(item, state, failed)
        episode.messages.append(Message(role="user", content=words))
        outcome = Feedback(reward=1 if reward.passed else -1)
        return WorldAttempt(rollout=episode.rollout(outcome), reward=reward)

    async def _work(self, episode: Episode, state: TaskState, *, watched: bool) -> None:
        for _ in range(self._max_turns):
            message = await episode.take_turn()
            for call in message.tool_calls:
                said = await asyncio.to_thread(state.act, call)
                result = Message(role="tool", content=said, tool_call_id=call.id, name=call.name)
                episode.messages.append(result)
            asked = None if message.tool_calls else state.hear(message.content or "")
            if watched and state.broken():
                return
            if asked is not None:
                episode.messages.append(Message(role="user", content=asked))
            elif not message.tool_calls:
                return

    def _reaction(self, task: WorldTask, state: TaskState, failed: str | None) -> str:
        if state.broken():
            return self._world.complain(task, state.broken(), PEOPLE, self._said)
        if failed is not None:
            return self._world.speech.failure(failed, PEOPLE, self._said)
        return self._world.speech.approval(PEOPLE, self._said)

    def _reward(self, episode: Episode, state: TaskState, failed: str | None) -> Reward:
        done = failed is None
        acted = any(turn.message.tool_calls for turn in episode.turns.values())
        parts = {
            "correctness": 1.0 if done and state.kept() else KEPT_ALONE if done else 0.0,
            "efficiency": efficiency(len(episode.turns), self._max_turns),
            "tool_usage": 1.0 if acted else 0.0,
        }
        return self._weights.reward(**parts)
