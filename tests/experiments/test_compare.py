"""Runs are compared under equal conditions, and their results can be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from afterwit import recipes
from afterwit.errors import SettingError
from experiments.compare.__main__ import main
from experiments.compare.compare import OBJECTIVES, facts, planned, run, table
from experiments.compare.curve import Curve
from experiments.compare.plot import draw
from experiments.simulation.plan import Plan, Point, RunResult
from experiments.simulation.processes import KeptRuns

ASKED = {"world": "tools", "interactions": 96, "seeds": range(4), "judge": None}


def _outcome(plan: Plan, gain: float) -> RunResult:
    points = tuple(
        Point(interactions=at, split="fresh", preference=gain * at / 96, task_success=0.95)
        for at in plan.measured
    )
    return RunResult(name=plan.name, facts=plan.facts(), points=points, updates=80, cpu_s=40.0)


def _curves() -> list[Curve]:
    plans = planned(recipes=(), **ASKED)
    return [
        Curve(name=name, runs=tuple(_outcome(plan, (place + 1) / 5 + plan.seed / 40) for plan in own))
        for place, (name, own) in enumerate(plans.items())
    ]


def test_objectives_are_alike_in_batch_replay_and_learning_rate() -> None:
    learners = [own[0].chosen().settings.learner for own in planned(recipes=(), **ASKED).values()]
    assert len(learners) == len(OBJECTIVES)
    assert all(learner == learners[0] for learner in learners)


def test_all_names_every_recipe_and_they_are_tuned_alike() -> None:
    plans = planned(recipes=["all"], **ASKED)
    assert tuple(plans) == recipes.names()
    learners = [own[0].chosen().settings.learner for own in plans.values()]
    assert len({(learner.lr, learner.batch, learner.replay, learner.epochs) for learner in learners}) == 1
    assert len({own[0].chosen().settings.objective for own in plans.values()}) == 5  # lora's is binary-rl's


def test_every_seed_is_measured_along_the_way_and_at_the_end() -> None:
    plans = planned(recipes=(), **ASKED | {"interactions": 50})["hybrid"]
    assert [plan.seed for plan in plans] == [0, 1, 2, 3]
    assert plans[0].measured == (0, 12, 36, 50)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"world": "moon"}, "--world moon"),
        ({"recipes": ["opdd"]}, "did you mean opd"),
        ({"judge": "jury"}, "--judge jury"),
        ({"seeds": ()}, "each is at least 1"),
        ({"interactions": 0}, "each is at least 1"),
    ],
)
def test_a_choice_that_is_not_there_is_said_before_anything_runs(
    choice: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=said):
        run(**{"recipes": (), "out": tmp_path, "jobs": 1} | ASKED | choice)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_finished_runs_are_shown_and_written_without_running_anything(tmp_path: Path) -> None:
    kept = KeptRuns(tmp_path / "runs.jsonl")
    for curve in _curves():
        for result in curve.runs:
            kept.add(result)
    shown = run(recipes=(), out=tmp_path, jobs=1, **ASKED)  # type: ignore[arg-type]
    assert shown == _curves()
    written = json.loads((tmp_path / "compare.json").read_text())
    assert [entry["name"] for entry in written["compared"]] == [entry.name for entry in OBJECTIVES]
    assert len(written["compared"][0]["runs"][0]["points"]) == 4
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_fits_a_terminal_and_shows_mean_and_spread() -> None:
    console = Console(width=80)
    with console.capture() as said:
        console.print(table(_curves()))
    lines = said.get().splitlines()
    assert len(lines) == 1 + len(OBJECTIVES)
    assert "0.24 (0.20-0.28)" in lines[1]
    assert max(map(len, lines)) <= 80


def test_json_holds_every_run_with_its_settings() -> None:
    made = facts("tools", _curves())
    assert made["compared"][1]["runs"][2]["facts"]["settings"]["objective.objective"] == "topk_opd"


@pytest.mark.slow
def test_the_picture_is_drawn_for_one_curve_as_for_six(tmp_path: Path) -> None:
    for curves in (_curves()[:1], (_curves() * 2)[:6]):
        draw(curves, "a world", tmp_path / "it.png")
        assert (tmp_path / "it.png").stat().st_size > 10_000


def test_the_command_answers_an_unknown_recipe_in_one_line() -> None:
    command = typer.Typer()
    command.command()(main)
    answer = CliRunner().invoke(command, ["--recipe", "opdd"])
    assert answer.exit_code == 1
    assert answer.output.startswith("--recipe opdd: there is no such recipe; did you mean opd?")
    assert answer.output.count("\n") == 1
