"""The report's files hold the numbers, and nothing that a model wrote becomes markup."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.apps.demo.live import Measurement
from afterwit.apps.demo.report.report import Lesson, Report, Sides, write


def _report(**changes: object) -> Report:
    points = tuple(
        Measurement(interactions=n, seconds=float(n), preference=p, task_success=0.99)
        for n, p in ((0, 0.05), (36, 0.8), (96, 0.9))
    )
    hostile = "<script>alert(1)</script>"
    report = Report(
        world="tools",
        kept_when="every rule was kept",
        passed_when="the check passes",
        seed=3,
        objective="hybrid",
        judge="base model",
        judge_accuracy=0.97,
        interactions=96,
        seconds=120.04,
        points=points,
        settings={"lr": 5e-4},
        sides=(Sides(request=hostile, before=hostile, after="x", kept_before=False, kept_after=True),),
        lessons=(
            Lesson(interaction=1, request="r", response="x", reaction=hostile, hint=None, version=None),
        ),
    )
    return replace(report, **changes)  # type: ignore[arg-type]


def test_the_json_has_before_after_and_the_curve(tmp_path: Path) -> None:
    write(_report(), tmp_path)
    facts = json.loads((tmp_path / "report.json").read_text())
    assert (facts["preference_before"], facts["preference_after"]) == (0.05, 0.9)
    assert (facts["task_success_before"], facts["task_success_after"]) == (0.99, 0.99)
    assert [point["interactions"] for point in facts["curve"]] == [0, 36, 96]
    keys = {"interactions", "seconds", "objective", "judge", "judge_accuracy", "seed", "world"}
    assert keys <= set(facts)


def test_the_picture_is_a_png_and_the_page_holds_it(tmp_path: Path) -> None:
    write(_report(), tmp_path)
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")


def test_texts_of_conversations_are_escaped_in_the_page(tmp_path: Path) -> None:
    write(_report(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") == 3


def test_one_measurement_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="1 measurements"):
        _report(points=(Measurement(interactions=0, seconds=0.0, preference=0.0, task_success=1.0),))
