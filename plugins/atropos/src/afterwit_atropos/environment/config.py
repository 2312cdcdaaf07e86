"""The environment's settings: the published names and defaults, and what is new here."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from atroposlib.envs.base import BaseEnvConfig
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from pydantic import ConfigDict, Field

from afterwit.api.settings import Settings, load
from afterwit.api.turns import SettingError
from afterwit_atropos.coding.agent import AgentSettings
from afterwit_atropos.coding.tasks import DatasetSettings
from afterwit_atropos.group import Profile
from afterwit_atropos.hindsight import HindsightSettings
from afterwit_atropos.reward import RewardWeights

NO_KEY = ("", "x", None)
"""Placeholder for a missing key: the library needs a text."""

KEY_VARIABLE = "AFTERWIT_ATROPOS_KEY"
"""Begins the name of the environment variable in which an engine finds its server's `--openai.api_key`."""

JUDGE = {"temperature": 0.7, "max_tokens": 500, "accept": "any"}
"""The published environment's judge, below `--env.afterwit_config`."""

TOOLSETS = ["terminal", "file"]

# the parts that the flags set, with their defaults
AGENT = AgentSettings()
DATASET = DatasetSettings(dataset_name="")
HINDSIGHT = HindsightSettings()
WEIGHTS = RewardWeights()


def _fixed(*held: Any, why: str) -> Any:
    """A published field that cannot be chosen here: the values that hold anyway, the first by default."""
    extra: dict[str, Any] = {"held": [*held], "why": why}
    return Field(default=held[0], description=f"No effect: {why}.", json_schema_extra=extra)


class AgenticOPDConfig(BaseEnvConfig):  # type: ignore[misc]  # an untyped library
    """`--env.NAME`, or `env:` in a YAML file, where an unknown name is refused."""

    model_config = ConfigDict(extra="forbid")

    opd_enabled: bool = Field(default=True, description="Score rollouts in hindsight. False: rewards alone.")
    distill_topk: int = Field(
        default=HINDSIGHT.top_k,
        ge=1,
        description="Ids in a teacher's row; fewer if the engine returns fewer.",
    )
    prm_votes: int = Field(default=3, description="Votes of the judge on each hint (judge.votes).")
    hint_max_next_state_chars: int = Field(
        default=4000, description="Characters of the next state that the judge is shown."
    )
    correctness_weight: float = Field(
        default=WEIGHTS.correctness, ge=0, le=1, description="Weight of the task's hidden tests."
    )
    efficiency_weight: float = Field(
        default=WEIGHTS.efficiency, ge=0, le=1, description="Weight of taking few turns."
    )
    tool_usage_weight: float = Field(
        default=WEIGHTS.tool_usage, ge=0, le=1, description="Weight of the tools that were used."
    )
    dataset_name: str | None = Field(
        default=None, description="A file or a data set of the hub. None: the built-in tasks."
    )
    dataset_split: str = Field(
        default=DATASET.dataset_split, description="Part of a data set of the hub, or of a folder."
    )
    dataset_config: str | None = Field(default=None, description="One of several data sets under a name.")
    prompt_field: str = Field(
        default=DATASET.prompt_field, description="Column of the prompts; else the column task."
    )
    tests_field: str = Field(
        default=DATASET.tests_field, description="Column of the hidden tests; else the column test_code."
    )
    setup_field: str | None = Field(default=None, description="Column of Python before each test.")
    entry_point_field: str | None = Field(default=None, description="Column of the function that is tested.")
    eval_size: int = Field(default=10, description="Most tasks that are held out.")
    eval_split_ratio: float = Field(default=0.15, description="Share of tasks that are held out.")
    max_agent_turns: int = Field(default=AGENT.max_turns, ge=1, description="Turns of a rollout.")
    agent_temperature: float = Field(
        default=1.0, ge=0.0, description="Sampling temperature. Evaluation takes 0."
    )
    system_prompt: str = Field(default=AGENT.system, description="The system prompt of coding tasks.")
    terminal_timeout: float = Field(
        default=AGENT.box.seconds,
        gt=0,
        allow_inf_nan=False,
        description="Seconds of a command, and of its CPU time; 120 as published.",
    )
    enabled_toolsets: list[str] | str | None = _fixed(None, TOOLSETS, why="the agent has terminal and file")
    disabled_toolsets: list[str] | str | None = _fixed(None, [], why="the agent has terminal and file")
    distribution: str | None = _fixed(None, why="the agent has terminal and file")
    terminal_backend: str = _fixed("local", why="commands run in boxes on this machine")
    terminal_lifetime: int = _fixed(3600, why="a box lives as long as its rollout")
    tool_pool_size: int = _fixed(128, why="tools need no threads")
    tool_call_parser: str = _fixed("hermes", why="the model's chat template decides how calls are read")
    extra_body: dict[str, Any] | str | None = _fixed(None, why="the engine returns ids, not chat messages")

    task_set: str = Field(
        default="coding", description="coding, tools_world, or your own as package.module:function."
    )
    engine: Literal["server", "embedded"] = Field(
        default="server", description="server: what --openai.* names. embedded: the model runs in here."
    )
    doubtful_hints: bool = Field(
        default=False,
        description="Let hints teach that name an address or command which no person named, or give orders "
        "beyond the turn.",
    )
    profile: Profile = Field(
        default=Profile.TOPK, description="topk: rows of several ids. sampled: of the sampled id alone."
    )
    follow_weights: bool | None = Field(
        default=None,
        description="Load the trainer's versions into the engine. None: into the embedded one alone.",
    )
    afterwit_config: str | None = Field(
        default=None, description="A TOML file with [engine], [judge] and [publish] as Afterwit reads them."
    )
    tensorboard_dir: str | None = Field(
        default=None, description="Write metrics for TensorBoard here, and metrics.jsonl."
    )
    eval_at_ends: bool = Field(
        default=False, description="Evaluate before the first group too, and after the last version."
    )
    unsafe_sandbox: bool = Field(default=False, description="The same as --unsafe-sandbox.")
    seed: int = Field(default=0, description="Which tasks are held out, and their order, follow from it.")

    group_size: int = Field(default=4, ge=1, description="Rollouts of one task.")
    total_steps: int = Field(default=500, description="Batches after which the environment stops.")
    steps_per_eval: int = Field(default=50, description="Batches between two evaluations.")
    wandb_name: str | None = Field(default="agentic-opd", description="Its name, which the server requires.")
    tokenizer_name: str = Field(
        default="", description='The model\'s folder or hub id. "": as --openai.model_name.'
    )
    ensure_scores_are_not_same: bool = Field(
        default=False,
        description="Drop groups with equal rewards even if the teacher has rows for them.",
    )


def settings_of(config: AgenticOPDConfig, server: APIServerConfig) -> Settings:
    """Settings of engine, judge and publishing. SettingError if they contradict each other, or if a published
    field has a value that does not hold here."""
    for name, field in AgenticOPDConfig.model_fields.items():
        value, fixed = getattr(config, name), field.json_schema_extra or {}
        if "held" in fixed and value not in fixed["held"]:
            raise SettingError(f"--env.{name} cannot be {value}: {fixed['why']}; leave it out")
    direct: dict[str, Any] = {
        "judge.votes": config.prm_votes,
        "judge.next_state_chars": config.hint_max_next_state_chars,
        "engine.kind": "embedded",
    }
    if config.engine == "server":
        direct |= _server(server)
    file = Path(config.afterwit_config) if config.afterwit_config else None
    return load(home=Path("/nonexistent"), file=file, direct=direct, unless={"judge": JUDGE}, environment={})


def hindsight_settings(config: AgenticOPDConfig) -> HindsightSettings:
    return HindsightSettings(top_k=config.distill_topk, doubtful_hints=config.doubtful_hints)


def _server(server: APIServerConfig) -> dict[str, Any]:
    if server.server_type not in ("vllm", "sglang"):
        raise SettingError(
            f'--openai.server_type "{server.server_type}" returns no token ids: choose vllm or sglang, or '
            "take --env.engine embedded"
        )
    if not server.base_url:
        raise SettingError("--openai.base_url is empty: name the server, or take --env.engine embedded")
    url = server.base_url.rstrip("/").removesuffix("/v1")
    direct = {"engine.kind": server.server_type, "engine.url": url}
    if server.api_key in NO_KEY:
        return direct
    variable = re.sub(r"\W", "_", f"{KEY_VARIABLE}_{url}")
    os.environ[variable] = server.api_key
    return {**direct, "engine.api_key_env": variable}
