"""The table of task sets: one entry for each name of `--env.task_set`, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from afterwit.apps.atropos.agent import AgentLimits
from afterwit.apps.atropos.environment.config import AgenticOPDConfig
from afterwit.apps.atropos.reward import RewardWeights
from afterwit.apps.atropos.task_sets import TaskSet
from afterwit.apps.atropos.task_sets.coding import CodingTasks
from afterwit.apps.atropos.task_sets.world import WorldTasks
from afterwit.apps.atropos.tasks import DatasetSettings, Task, built_in, cache_of_the_hub, load_tasks
from afterwit.apps.demo.tools import rehearse
from afterwit.apps.demo.tools.world import ToolsWorld
from afterwit.apps.sandbox.box import seen_in, walls
from afterwit.core.errors import SettingError

WORLD_TASKS = 1000
"""Tasks of a world before they are played again."""


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
    except (ImportError, AttributeError) as error:
        raise SettingError(f"--env.task_set {config.task_set}: {error}") from error
    found: TaskSet = make(config)
    return found


def weights_of(config: AgenticOPDConfig) -> RewardWeights:
    """SettingError for a weight that is none."""
    try:
        return RewardWeights(
            correctness=config.correctness_weight,
            efficiency=config.efficiency_weight,
            tool_usage=config.tool_usage_weight,
        )
    except ValueError as error:
        raise SettingError(f"--env.{str(error).replace(' ', '_weight ', 1)}") from error


def _coding(config: AgenticOPDConfig) -> TaskSet:
    """Its boxes are tried first: without isolation nothing starts."""
    found = walls(unsafe=config.unsafe_sandbox)
    tasks = built_in() if config.dataset_name is None else _loaded(config, config.dataset_name)
    return CodingTasks(
        tasks,
        found,
        limits=AgentLimits(max_turns=config.max_agent_turns),
        weights=weights_of(config),
        system=config.system_prompt,
        held_out=min(config.eval_size, max(1, int(len(tasks) * config.eval_split_ratio))),
        seed=config.seed,
    )


def _loaded(config: AgenticOPDConfig, name: str) -> Sequence[Task]:
    """A data set's tasks. SettingError if the agent could read it."""
    tasks, place = load_tasks(_dataset(config, name)), Path(name).expanduser()
    if (folder := seen_in(place if place.exists() else cache_of_the_hub())) and not config.unsafe_sandbox:
        raise SettingError(
            f"the data set {name} lies in {folder}, which commands in a box can read, hidden tests and all: "
            "put it elsewhere (HF_HOME says where data sets of the hub are kept)"
        )
    return tasks


def _dataset(config: AgenticOPDConfig, name: str) -> DatasetSettings:
    return DatasetSettings(
        name=name,
        split=config.dataset_split,
        config=config.dataset_config,
        prompt_column=config.prompt_field,
        tests_column=config.tests_field,
        setup_column=config.setup_field,
        entry_point_column=config.entry_point_field,
    )


def _tools_world(config: AgenticOPDConfig) -> TaskSet:
    """The demo's tools world. Its commands start no process, so it needs no box."""
    return WorldTasks(
        ToolsWorld(commands=rehearse.run_nothing),
        training=WORLD_TASKS,
        held_out=config.eval_size,
        max_turns=config.max_agent_turns,
        weights=weights_of(config),
        seed=config.seed,
    )


TASK_SETS: Mapping[str, Callable[[AgenticOPDConfig], TaskSet]] = {
    "coding": _coding,
    "tools_world": _tools_world,
}
