"""The report's files hold the numbers, and nothing that a model wrote becomes markup."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest

from afterwit.demo.live import Measurement
from afterwit.demo.pages import LINE, Curve, Facts, chart
from afterwit.demo.people import Interaction, Score
from afterwit.demo.report import examples, rules_learned, summary, write
from afterwit.demo.worlds import WORLDS


def _judged(*, reward: int, hint: str | None = None, version: int | None = None) -> Facts:
    ended = None if version else "held_back"
    return {"turn": f"t{reward}", "reward": reward, "hint": hint, "version": version, "ended": ended}


def _step(speaker: str, text: str, judged: Facts | None = None) -> Facts:
    return {"speaker": speaker, "text": text, "judged": judged}


HOSTILE = "<script>alert(1)</script>"
POINTS = [
    Measurement(interactions=n, seconds=float(n), preference=p, task_success=0.99)
    for n, p in ((0, 0.05), (36, 0.8), (96, 0.9))
]
RULE = {
    "rule": "r",
    "words": "Do so.",
    "tasks": 9,
    "broken": [8, 3, 1],
    "taught_in": list(range(2, 11)),
    "said": "no!",
}
TALK = {
    "number": 2,
    "request": "r",
    "reaction": HOSTILE,
    "mood": "complaint",
    "steps": [
        _step("person", "r"),
        _step("agent", "reads", _judged(reward=1, version=1)),
        _step("tool", "ok"),
        _step("agent", "deletes", _judged(reward=-1, hint="Ask first.")),
        _step("person", HOSTILE),
        _step("agent", "Sorry."),
    ],
    "rules": ["r"],
}
EXAMPLE = {
    "request": HOSTILE,
    "before": HOSTILE,
    "after": "x",
    "kept_before": False,
    "kept_after": True,
    "passed_before": True,
    "passed_after": True,
}


def _report(*decisions: Facts, **changes: object) -> Facts:
    return {
        **summary(POINTS, [TALK], decisions),
        "world": "tools",
        "kept_when": "every rule was kept",
        "passed_when": "the check passes",
        "seed": 3,
        "objective": "hybrid",
        "judge": "base model",
        "interactions": 96,
        "seconds": 120.0,
        "curve": [asdict(point) for point in POINTS],
        "settings": {"lr": 5e-4},
        "rules": [RULE],
        "examples": [EXAMPLE],
        "versions": 7,
        **changes,
    }


def test_the_json_has_before_after_and_the_curve(tmp_path: Path) -> None:
    write(_report(), tmp_path)
    facts = json.loads((tmp_path / "report.json").read_text())
    assert (facts["preference_before"], facts["preference_after"]) == (0.05, 0.9)
    assert (facts["task_success_before"], facts["task_success_after"]) == (0.99, 0.99)
    assert [point["interactions"] for point in facts["curve"]] == [0, 36, 96]
    keys = {"interactions", "seconds", "objective", "judge", "seed", "world"}
    assert keys <= set(facts)


def test_the_picture_is_in_the_page_and_a_file_of_its_own(tmp_path: Path) -> None:
    write(_report(), tmp_path)
    picture = ElementTree.parse(tmp_path / "learning.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert "preference after 36: 0.80" in picture.itertext()
    page = (tmp_path / "report.html").read_text()
    assert 'aria-label="preference and task success over 96 tasks of people"' in page
    assert "<title>preference after 36: 0.80</title>" in page
    assert "http" not in page


def test_texts_of_conversations_are_escaped_in_the_page(tmp_path: Path) -> None:
    write(_report(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") == 3


def test_one_measurement_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="1 measurements"):
        summary(POINTS[:1], [], [])


def test_a_rule_links_to_the_conversations_that_taught_it(tmp_path: Path) -> None:
    write(_report(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<b>Do so.</b>" in page
    assert "Broken in 8 of 9 held-out tasks before, in 1 after." in page
    assert '<a href="#conversation-2">2</a>' in page
    assert 'id="conversation-2"' in page
    assert "who said: <q>no!</q>" in page
    assert "and 2 more." in page


def test_a_rule_has_a_curve_of_how_often_it_was_kept(tmp_path: Path) -> None:
    write(_report(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert 'aria-label="how often it was kept: Do so."' in page
    for said in ("kept after 0: 0.11", "kept after 36: 0.67", "kept after 96: 0.89"):
        assert f"<title>{said}</title>" in page


def test_a_rule_that_applied_to_no_task_has_no_curve(tmp_path: Path) -> None:
    rule = RULE | {"tasks": 0, "broken": [0, 0, 0], "taught_in": [], "said": None}
    write(_report(rules=[rule]), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "how often it was kept" not in page
    assert "No conversation taught it." in page


def test_what_the_person_said_stands_where_it_was_said(tmp_path: Path) -> None:
    write(_report(examples=[]), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.count("&lt;script&gt;") == 1
    said = [page.index(text) for text in (">reads<", ">deletes<", "Ask first.", "&lt;script&gt;", ">Sorry.<")]
    assert said == sorted(said)


def test_reward_hint_and_version_stand_beside_their_turn(tmp_path: Path) -> None:
    write(_report(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    first, second = page[page.index(">reads<") : page.index(">ok<")], page[page.index(">deletes<") :]
    assert "reward +1" in first
    assert "trained version 1" in first
    assert "reward &minus;1" in second
    assert "did not train (held back)" in second
    assert "<q>Ask first.</q>" in second


def test_held_versions_are_named_and_marked_in_the_picture(tmp_path: Path) -> None:
    held = {"after": 20, "kind": "hold", "words": "It lost 3 of 4 of delete."}
    sure = {"after": 30, "kind": "confirm", "words": "Version 2 is confirmed."}
    write(_report(held, sure), tmp_path)
    facts, page = json.loads((tmp_path / "report.json").read_text()), (tmp_path / "report.html").read_text()
    assert (facts["versions"], facts["held"], facts["alarms"]) == (7, 1, 0)
    assert page.count("It lost 3 of 4 of delete.") == 2
    assert page.count("Version 2 is confirmed.") == 1


def test_labels_of_curves_that_end_together_are_not_written_over_each_other() -> None:
    ends: list[Curve] = [(name, name, ((0, 0.0), (9, end))) for name, end in (("a", 0.96), ("b", 0.95))]
    svg = chart(ends, width=300, height=100, label="both")
    one, other = (float(y) for y in re.findall(r'<text class="[ab]" x="[^"]*" y="([^"]*)"', svg))
    assert other - one >= LINE


def _score(*done: tuple[bool, tuple[str, ...], bool]) -> Score:
    """Trials that kept, broke and passed as given."""
    tasks = [WORLDS["tools"].task("fresh", Random(seed)) for seed in range(len(done))]
    return Score(
        trials=tuple(
            Interaction(
                turns=(),
                mood="approval",
                reaction="",
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
    assert [(one["kept_before"], one["kept_after"], one["passed_after"]) for one in shown] == [
        (False, True, True),
        (False, True, True),
        (False, False, True),
        (False, True, False),
    ]
    assert (shown[0]["request"], shown[2]["request"]) == (
        before.trials[3].task.request,
        before.trials[0].task.request,
    )


def test_a_rule_is_counted_in_the_tasks_that_it_applies_to() -> None:
    before, after = _score(WRONG, RIGHT, WRONG), _score(RIGHT, RIGHT, WRONG)
    talks = [TALK | {"rules": ["dry_run"]}, TALK | {"number": 5, "rules": ["backup"]}]
    one, other = rules_learned({"dry_run": "Try it dry.", "backup": "Copy it."}, [before, after], talks)
    assert (one["tasks"], one["broken"], one["taught_in"]) == (3, [2, 1], [2])
    assert (other["tasks"], other["broken"], other["taught_in"]) == (0, [0, 0], [5])
