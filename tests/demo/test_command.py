"""The whole demo, briefly: the files that it leaves, and what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from afterwit.config import load
from afterwit.demo.command import run
from afterwit.demo.settings import changed, choose
from afterwit.demo.worlds import WORLDS, world_named
from afterwit.errors import SettingError
from afterwit.home.home import config_text
from afterwit.store.sqlite import SqliteStore

NEEDED = {
    "preference_before",
    "preference_after",
    "task_success_before",
    "task_success_after",
    "interactions",
    "seconds",
    "objective",
    "judge",
    "seed",
    "world",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("world", WORLDS)
def test_a_short_demo_learns_something_and_reports_it(world: str, tmp_path: Path) -> None:
    run(world, interactions=12, seed=5, out=tmp_path)
    facts = json.loads((tmp_path / "report.json").read_text())
    assert facts.keys() >= NEEDED
    assert (facts["interactions"], facts["seed"], facts["world"]) == (12, 5, world)
    assert facts["preference_after"] > facts["preference_before"] + 0.1
    assert ElementTree.parse(tmp_path / "learning.svg").getroot().tag.endswith("svg")
    steps = [step["judged"] for talk in facts["conversations"] for step in talk["steps"]]
    hints = {judged["hint"] for judged in steps if judged} - {None}
    assert hints
    assert hints <= set(re.findall("[^<>]+", (tmp_path / "report.html").read_text()))
    store = SqliteStore.open(tmp_path / "home" / "store.db", fingerprint=None)
    assert len([row for row in store.versions() if row.trained]) > 1
    store.close()


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"world": "moon"}, "--world moon: it must be one of tools, chat"),
        ({"judge": "jury"}, "--judge jury: it must be one of model, rules"),
        ({"direct": {"objective.objective": "hybird"}}, "objective.objective = 'hybird' on the command line"),
        ({"interactions": 0}, "--interactions 0: at least one is needed"),
        ({"recipe": "topk"}, "--recipe topk: there is no such recipe; did you mean opd-topk?"),
    ],
)
def test_a_choice_that_is_not_there_is_said_before_anything_starts(
    choice: dict[str, object], said: str, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"world": "tools", "interactions": 1, "seed": 0, "out": tmp_path} | choice
    with pytest.raises(SettingError, match=said):
        run(**asked)


def test_the_homes_settings_are_the_demos(tmp_path: Path) -> None:
    chosen = choose(world_named("tools"), tmp_path)
    (tmp_path / "config.toml").write_text(config_text(changed(chosen.settings)))
    read = load(home=tmp_path, environment={})
    assert (read.objective, read.learner, read.judge) == (
        chosen.settings.objective,
        chosen.settings.learner,
        chosen.settings.judge,
    )


def test_on_a_server_the_demo_trains_an_adapter_and_judges_with_the_base_beside_it(tmp_path: Path) -> None:
    world = world_named("chat")
    own = choose(world, tmp_path).settings
    served = choose(world, tmp_path, direct={"engine.kind": "vllm"}).settings
    assert (own.learner.lora_rank, served.learner.lora_rank) == (0, 16)
    assert served.engine.swap == "adapters"
    assert served.judge.weights == "base"
    assert 'engine.kind = "vllm"' in config_text(changed(served))
