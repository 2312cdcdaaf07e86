"""The published names become settings of Afterwit's own parts, and what fits nothing is refused."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from afterwit.engines.server.settings import SglangSettings, VllmSettings
from afterwit.errors import SettingError
from afterwit_atropos.environment.config import (
    AgenticOPDConfig,
    hindsight_settings,
    settings_of,
)
from afterwit_atropos.environment.env import AgenticOPDEnv, task_set_of
from afterwit_atropos.environment.task_sets import WorldTasks, coding_tasks
from afterwit_atropos.sandbox.isolation import find_isolation
from plugins.atropos.tests.sandbox.boxes import isolated

PUBLISHED = {
    "opd_enabled": True,
    "distill_topk": 50,
    "prm_votes": 3,
    "hint_max_next_state_chars": 4000,
    "correctness_weight": 0.7,
    "efficiency_weight": 0.15,
    "tool_usage_weight": 0.15,
    "dataset_name": None,
    "eval_size": 10,
    "eval_split_ratio": 0.15,
    "max_agent_turns": 15,
    "agent_temperature": 1.0,
    "group_size": 4,
    "total_steps": 500,
    "steps_per_eval": 50,
    "wandb_name": "agentic-opd",
}


def test_the_published_names_have_the_published_defaults() -> None:
    config, (server,) = AgenticOPDEnv.config_init()
    held = config.model_dump()
    assert {name: held[name] for name in PUBLISHED} == PUBLISHED
    assert (server.server_type, server.model_name) == ("vllm", "Qwen/Qwen3-4B")


def server(**fields: Any) -> APIServerConfig:
    return APIServerConfig(**{"base_url": "http://127.0.0.1:9001/v1", "server_type": "vllm"} | fields)


def test_published_settings_reach_judge_engine_and_teacher(tmp_path: Path) -> None:
    file = tmp_path / "afterwit.toml"
    file.write_text('[judge]\nprompts = "short"\n[engine]\npatience_s = 7.0\n')
    config = AgenticOPDConfig(
        prm_votes=5, hint_max_next_state_chars=100, distill_topk=7, afterwit_config=str(file)
    )
    settings = settings_of(config, server())
    assert (settings.judge.votes, settings.judge.next_state_chars) == (5, 100)
    assert settings.judge.prompts == "short"
    assert isinstance(settings.engine, VllmSettings)
    assert (settings.engine.url, settings.engine.patience_s) == ("http://127.0.0.1:9001", 7.0)
    assert hindsight_settings(config).top_k == 7
    assert isinstance(settings_of(config, server(server_type="sglang")).engine, SglangSettings)


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_an_address_may_end_with_the_path_of_the_api_and_a_slash(end: str) -> None:
    engine = settings_of(AgenticOPDConfig(), server(base_url=f"http://127.0.0.1:9001{end}")).engine
    assert engine.urls == ("http://127.0.0.1:9001",)


def test_the_judge_is_the_published_one_unless_a_file_names_another(tmp_path: Path) -> None:
    judge = settings_of(AgenticOPDConfig(), server()).judge
    assert (judge.temperature, judge.max_tokens, judge.accept) == (0.7, 500, "any")
    file = tmp_path / "afterwit.toml"
    file.write_text("[judge]\nmax_tokens = 4096\n")
    judge = settings_of(AgenticOPDConfig(afterwit_config=str(file)), server()).judge
    assert (judge.temperature, judge.max_tokens) == (0.7, 4096)


@pytest.mark.parametrize(
    ("name", "held", "other"),
    [
        ("enabled_toolsets", ["terminal", "file"], ["web"]),
        ("disabled_toolsets", [], ["terminal"]),
        ("distribution", None, "development"),
        ("terminal_backend", "local", "docker"),
        ("terminal_lifetime", 3600, 60),
        ("tool_pool_size", 128, 8),
        ("tool_call_parser", "hermes", "qwen"),
        ("extra_body", None, {"provider": {}}),
    ],
)
def test_a_published_field_that_cannot_be_chosen_is_answered(name: str, held: Any, other: Any) -> None:
    settings_of(AgenticOPDConfig(**{name: held}), server())
    with pytest.raises(SettingError, match=rf"--env\.{name} cannot be .*: .*; leave it out"):
        settings_of(AgenticOPDConfig(**{name: other}), server())


@pytest.mark.parametrize(
    "fields",
    [
        {"distill_topk": 0},
        {"agent_temperature": -1.0},
        {"max_agent_turns": 0},
        {"group_size": 0},
        {"tool_usage_weight": -0.1},
        {"terminal_timeout": 0},
    ],
)
def test_a_number_out_of_range_is_refused_before_the_run(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Input should be greater than"):
        AgenticOPDConfig(**fields)


def test_an_unknown_field_of_a_file_is_refused() -> None:
    with pytest.raises(ValueError, match="distil_topk"):
        AgenticOPDConfig(distil_topk=7)


@isolated
def test_the_limits_of_a_command_and_the_tasks_held_out_follow_the_published_names() -> None:
    found = task_set_of(AgenticOPDConfig(terminal_timeout=120))
    assert (len(found.training), len(found.held_out)) == (6, 2)
    assert found._settings.box.seconds == found._settings.box.cpu_seconds == 120


def test_each_servers_key_reaches_its_engine_and_a_placeholder_does_not() -> None:
    assert settings_of(AgenticOPDConfig(), server(api_key="x")).engine.api_key_env is None
    keys = {"http://127.0.0.1:9001/v1": "secret", "http://127.0.0.1:9002/v1": "other"}
    servers = [server(base_url=url, api_key=key) for url, key in keys.items()]
    engines = [settings_of(AgenticOPDConfig(), each).engine for each in servers]
    try:
        assert [engine.key(os.environ) for engine in engines] == ["secret", "other"]
    finally:
        for engine in engines:
            del os.environ[engine.api_key_env]


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"server_type": "openai"}, "choose vllm or sglang"), ({"base_url": ""}, "base_url is empty")],
)
def test_a_server_that_cannot_do_it_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        settings_of(AgenticOPDConfig(), server(**fields))


def test_a_task_set_is_named_by_its_table_or_by_a_function() -> None:
    assert isinstance(task_set_of(AgenticOPDConfig(task_set="tools_world")), WorldTasks)
    assert task_set_of(AgenticOPDConfig(task_set=f"{__name__}:my_own")) == "agentic-opd"
    for name, said in (
        ("codin", "did you mean coding"),
        ("no.such:thing", "no.such"),
        (":thing", "Empty module name"),
        (f"{__name__}:no", "no"),
    ):
        with pytest.raises(SettingError, match=said):
            task_set_of(AgenticOPDConfig(task_set=name))


def my_own(config: AgenticOPDConfig) -> Any:
    return config.wandb_name


@isolated
def test_a_data_set_that_the_agent_could_read_is_refused(tmp_path: Path) -> None:
    def readable(place: Path) -> str | None:
        return "/usr" if place == file else None

    row = {"prompt": "p", "tests": "assert f(1) == 2"}
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join([json.dumps(row)] * 8))
    config = AgenticOPDConfig(dataset_name=str(file))
    assert len(task_set_of(config).training) == 6
    with pytest.raises(SettingError, match=r"tasks\.jsonl is in /usr, which commands in a box can read"):
        coding_tasks(config, readable=readable)
    config = AgenticOPDConfig(dataset_name=str(file), unsafe_sandbox=True)
    assert len(coding_tasks(config, readable=readable).training) == 6


def test_without_isolation_no_coding_task_starts() -> None:
    isolation = partial(find_isolation, find=lambda name: None)
    with pytest.raises(SettingError, match="Install bubblewrap"):
        coding_tasks(AgenticOPDConfig(), isolation=isolation)
    found = coding_tasks(AgenticOPDConfig(unsafe_sandbox=True), isolation=isolation)
    assert (len(found.training), len(found.held_out)) == (6, 2)
