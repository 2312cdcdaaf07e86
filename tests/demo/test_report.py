"""The report's files hold the numbers, and nothing that a model wrote becomes markup."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from afterwit.apps.demo.live import Measurement
from afterwit.apps.demo.people import Score, Trial
from afterwit.apps.demo.report.before_after import Example, RuleLearned, examples, rules_learned
from afterwit.apps.demo.report.lessons import Lesson, TrainedTurn
from afterwit.apps.demo.report.report import Report, write
from afterwit.apps.demo.worlds import WORLDS


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
        rules=(
            RuleLearned(
                rule="r",
                words="Do so.",
                tasks=9,
                broken_before=8,
                broken_after=1,
                taught_in=tuple(range(2, 11)),
                said="no!",
            ),
        ),
        examples=(
            Example(
                request=hostile,
                before=hostile,
                after="x",
                kept_before=False,
                kept_after=True,
                passed_before=True,
                passed_after=True,
            ),
        ),
        lessons=(
            Lesson(
                interaction=2,
                request="r",
                reaction=hostile,
                mood="complaint",
                turns=tuple(
                    TrainedTurn(turn=f"t{number}", response="x", hint=None, version=number)
                    for number in (1, 2)
                ),
                rules=("r",),
            ),
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


def test_a_rule_links_to_the_conversations_that_taught_it(tmp_path: Path) -> None:
    write(_report(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<b>Do so.</b> Broken in 8 of 9 held-out tasks before, in 1 after." in page
    assert '<a href="#conversation-2">2</a>' in page
    assert 'id="conversation-2"' in page
    assert "who said: <q>no!</q> Taught again in " in page
    assert "and 2 more." in page


def test_what_the_person_said_stands_once_in_its_conversation(tmp_path: Path) -> None:
    write(_report(examples=()), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.count("&lt;script&gt;") == 1
    assert page.count('id="conversation-') == 1
    assert page.count("Trained into version") == 2


def _score(*done: tuple[bool, tuple[str, ...], bool]) -> Score:
    """Trials that kept, broke and passed as told."""
    tasks = [WORLDS["tools"].task("fresh", Random(seed)) for seed in range(len(done))]
    return Score(
        trials=tuple(
            Trial(
                task=replace(task, kind=str(number % 2), rules=("dry_run",)),
                messages=(),
                kept=kept,
                broken=broken,
                passed=passed,
            )
            for number, (task, (kept, broken, passed)) in enumerate(zip(tasks, done, strict=True))
        )
    )


WRONG, RIGHT, UNDONE = (False, ("dry_run",), True), (True, (), True), (True, (), False)


def test_the_first_example_is_a_task_that_is_done_right_only_now_and_a_failure_is_shown_too() -> None:
    before = _score(WRONG, RIGHT, WRONG, WRONG, WRONG)
    after = _score(WRONG, RIGHT, UNDONE, RIGHT, RIGHT)
    shown = examples(before, after)
    assert [(one.kept_before, one.kept_after, one.passed_after) for one in shown] == [
        (False, True, True),
        (False, True, True),
        (False, False, True),
        (False, True, False),
    ]
    assert (shown[0].request, shown[2].request) == (
        before.trials[3].task.request,
        before.trials[0].task.request,
    )


def test_a_rule_is_counted_in_the_tasks_that_it_applies_to() -> None:
    before, after = _score(WRONG, RIGHT, WRONG), _score(RIGHT, RIGHT, WRONG)
    lesson = _report().lessons[0]
    lessons = [replace(lesson, rules=("dry_run",)), replace(lesson, interaction=5, rules=("backup",))]
    one, other = rules_learned({"dry_run": "Try it dry.", "backup": "Copy it."}, before, after, lessons)
    assert (one.tasks, one.broken_before, one.broken_after, one.taught_in) == (3, 2, 1, (2,))
    assert (other.tasks, other.broken_before, other.broken_after, other.taught_in) == (0, 0, 0, (5,))
