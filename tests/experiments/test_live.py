"""Live runs are kept as in their reports, and their tables hold their means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from afterwit.demo.live import Measurement
from experiments.live import tables
from experiments.live.ruin import Half, Ruin, table
from experiments.live.runs import LiveResult, LiveRuns, result_of


def _result(world: str, seed: int, *preferences: float) -> LiveResult:
    points = tuple(
        Measurement(interactions=12 * place, seconds=9.0, preference=each, task_success=0.5)
        for place, each in enumerate(preferences)
    )
    return LiveResult(
        world=world, seed=seed, judge="rules", judge_accuracy=1.0, seconds=90.0, points=points, settings={}
    )


def test_a_run_is_kept_as_its_report_says_it(tmp_path: Path) -> None:
    result = _result("tools", 3, 0.0, 0.75)
    curve = [
        {
            "interactions": point.interactions,
            "seconds": 9.0,
            "preference": point.preference,
            "task_success": 0.5,
        }
        for point in result.points
    ]
    facts = {"world": "tools", "seed": 3, "judge": "rules", "seconds": 90.0}
    report = json.dumps(facts | {"curve": curve, "settings": {}, "lessons": []})
    assert result_of(report, judge_accuracy=1.0) == result
    kept = LiveRuns(tmp_path / "live.jsonl")
    assert kept.read() == {}
    kept.add(result)
    assert kept.read() == {("tools", 3): result}
    with pytest.raises(LookupError, match="after 36 interactions"):
        result.at(36)


def test_a_worlds_table_has_a_row_for_each_seed_and_the_mean() -> None:
    lines = tables.by_seed([_result("tools", 1, 0.0, 0.75), _result("tools", 0, 0.1, 0.25)]).splitlines()
    assert lines[0] == "| seed | start | 12 | judge right | seconds |"
    assert lines[2:] == [
        "| 0 | 0.10 / 0.50 | 0.25 / 0.50 | 100% | 90 |",
        "| 1 | 0.00 / 0.50 | 0.75 / 0.50 | 100% | 90 |",
        "| **mean** | **0.05 / 0.50** | **0.50 / 0.50** | **100%** | **90** |",
    ]


def test_the_table_of_both_worlds_leaves_out_what_one_was_not_measured_at() -> None:
    lines = tables.means([_result("tools", 0, 0.0, 0.5, 0.9), _result("chat", 0, 0.1, 1.0)]).splitlines()
    assert lines[0] == "| share of held-out tasks, mean of 1 seed | 0 | 12 | 24 |"
    assert lines[2] == "| tools: keeps the owner's house rules | 0.00 | 0.50 | 0.90 |"
    assert lines[4] == "| chat: answers as this person likes it | 0.10 | 1.00 |  |"


def test_a_ruinous_run_is_kept_with_both_halves_and_has_two_rows() -> None:
    curve = [
        {"interactions": at, "seconds": 9.0, "preference": share, "task_success": 0.5}
        for at, share in ((0, 0.0), (12, 0.75))
    ]
    report = {"world": "tools", "curve": curve, "versions": 3, "held": 1, "alarms": 2, "seconds": 90.0}
    half = Half.of(json.dumps(report))
    run = Ruin(seed=4, guarded=half, unguarded=half)
    assert Ruin.from_line(run.to_line()) == run
    assert table([run]).splitlines()[0] == "| seed | promotion | start | 12 | versions | holds | alarms |"
    assert table([run]).splitlines()[2:] == [
        "| 4 | with | 0.00 / 0.50 | 0.75 / 0.50 | 3 | 1 | 2 |",
        "| 4 | without | 0.00 / 0.50 | 0.75 / 0.50 | 3 | 1 | 2 |",
    ]
