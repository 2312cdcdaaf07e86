"""Task sets: the coding tasks, a world of the demo, or those of another module, as the settings name them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from math import ceil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from afterwit.api.turns import Feedback, Message, SettingError
from afterwit.api.worlds import Split, TaskState, ToolsWorld, World
from afterwit.api.worlds import Task as WorldTask
from afterwit_atropos.coding.agent import AgentSettings, play
from afterwit_atropos.coding.tasks import DatasetSettings, Task, built_in, cache_of_the_hub, load_tasks
from afterwit_atropos.episode import Attempt, Episode, Policy
from afterwit_atropos.reward import Reward, RewardWeights, efficiency
from afterwit_atropos.sandbox.isolation import BoxLimits, Isolation, find_isolation, seen_in

if TYPE_CHECKING:
    from afterwit_atropos.environment.config import AgenticOPDConfig

WORLD_TASKS = 1000
"""Tasks of a world before they are played again."""

PEOPLE: Split = "dev"
"""The wordings of people while the policy learns, and while it is measured."""

MEASURE: Split = "fresh"

DONE_ALONE = 0.5
"""Correctness of a task that is done, but not as the person wants it."""


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


def task_set_of(config: AgenticOPDConfig) -> TaskSet:
    """The tasks that the settings name. SettingError for none, and IsolationMissing, which is one."""
    if ":" in config.task_set:
        return _others(config)
    if config.task_set not in TASK_SETS:
        near = get_close_matches(config.task_set, TASK_SETS, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise SettingError(
            f"--env.task_set {config.task_set}: it must be one of {', '.join(TASK_SETS)}, or "
            f"package.module:function{meant}"
        )
    return TASK_SETS[config.task_set](config)


def _others(config: AgenticOPDConfig) -> TaskSet:
    module, _, name = config.task_set.partition(":")
    try:
        make = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(f"--env.task_set {config.task_set}: {error}") from error
    found: TaskSet = make(config)
    return found


def _weights(config: AgenticOPDConfig) -> RewardWeights:
    return RewardWeights(
        correctness=config.correctness_weight,
        efficiency=config.efficiency_weight,
        tool_usage=config.tool_usage_weight,
    )


def coding_tasks(
    config: AgenticOPDConfig,
    *,
    isolation: Callable[..., Isolation] = find_isolation,
    readable: Callable[[Path], str | None] = seen_in,
) -> TaskSet:
    """Its boxes are tried first: without isolation nothing starts."""
    found = isolation(unsafe=config.unsafe_sandbox)
    tasks = built_in() if config.dataset_name is None else _loaded(config, config.dataset_name, readable)
    return CodingTasks(
        tasks,
        found,
        AgentSettings(
            max_turns=config.max_agent_turns,
            box=BoxLimits(seconds=config.terminal_timeout, cpu_seconds=config.terminal_timeout),
            weights=_weights(config),
            system=config.system_prompt,
        ),
        held_out=min(config.eval_size, max(1, ceil(len(tasks) * config.eval_split_ratio))),
        seed=config.seed,
    )


def _loaded(config: AgenticOPDConfig, name: str, readable: Callable[[Path], str | None]) -> Sequence[Task]:
    """A data set's tasks. SettingError if the agent could read it."""
    asked = DatasetSettings(**{field.name: getattr(config, field.name) for field in fields(DatasetSettings)})
    tasks, place = load_tasks(asked), Path(name).expanduser()
    if (folder := readable(place if place.exists() else cache_of_the_hub())) and not config.unsafe_sandbox:
        raise SettingError(
            f"the data set {name} is in {folder}, which commands in a box can read, hidden tests included: "
            "put it elsewhere (HF_HOME names the folder for data sets of the hub)"
        )
    return tasks


def _tools_world(config: AgenticOPDConfig) -> TaskSet:
    """The demo's tools world. Its commands start no process, so it needs no box."""
    return WorldTasks(
        ToolsWorld(),
        training=WORLD_TASKS,
        held_out=config.eval_size,
        max_turns=config.max_agent_turns,
        weights=_weights(config),
        seed=config.seed,
    )


TASK_SETS: Mapping[str, Callable[[AgenticOPDConfig], TaskSet]] = {
    "coding": coding_tasks,
    "tools_world": _tools_world,
}


class CodingTasks:
    """Implements `TaskSet`."""

    def __init__(
        self,
        tasks: Sequence[Task],
        walls: Isolation,
        settings: AgentSettings,
        *,
        held_out: int,
        seed: int,
    ) -> None:
        """`held_out` tasks, drawn by the seed, only measure. SettingError if one kind is empty."""
        drawn = Random(seed).sample(list(tasks), len(tasks))
        if not 0 < held_out < len(drawn):
            raise SettingError(
                f"{held_out} of {len(drawn)} tasks would be held out, but there must be some of both: "
                "set eval_size and eval_split_ratio"
            )
        self.held_out, self.training = tuple(drawn[:held_out]), tuple(drawn[held_out:])
        self._walls, self._settings = walls, settings

    async def play(self, item: Task, policy: Policy, *, measuring: bool) -> Attempt:
        return await play(item, policy, self._walls, self._settings)


class WorldTasks:
    """Implements `TaskSet`. Tasks are drawn once; the held-out ones have other names and wordings."""

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

    async def play(self, item: WorldTask, policy: Policy, *, measuring: bool) -> Attempt:
        opening = (
            Message(role="system", content=self._world.system),
            Message(role="user", content=item.request),
        )
        episode = Episode(opening, self._world.tools, policy)
        with self._world.start(item) as state:
            await self._work(episode, state, watched=not measuring)
            failed = await asyncio.to_thread(state.check)
            reward = self._reward(episode, state, failed)
            words = self._reaction(item, state, failed)
        episode.messages.append(Message(role="user", content=words))
        outcome = Feedback(reward=1 if reward.passed else -1)
        return Attempt(rollout=episode.rollout(outcome), reward=reward)

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
            "correctness": 1.0 if done and state.kept() else DONE_ALONE if done else 0.0,
            "efficiency": efficiency(len(episode.turns), self._max_turns),
            "tool_usage": 1.0 if acted else 0.0,
        }
        return self._weights.reward(**parts)
