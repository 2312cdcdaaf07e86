"""The sentence and the page of a trial."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.practice.lessons import Progress
from afterwit.practice.table import LessonRow
from afterwit.trial.people import Person
from afterwit.trial.play import Lesson, Played, Point, Talk, satisfied_after
from afterwit.trial.report import Learning, conclusion, write
from afterwit.turn import SHARED

PERSON = Person(preference="short", seed=0)
LEARNING = Learning(versions=4, seconds=80.0, tokens=4000, memory_mib=900.0, way=0.4)
LESSON = Lesson(preference="short", wants=PERSON.wants, alone=0, told=12, of=16)

PRACTISED = LessonRow(
    number=1,
    words="Answer in <one> sentence",
    source="trial",
    adapter=SHARED,
    progress=Progress.LEARNED,
    corrections=(),
    learned=5.0,
    said=2,
    said_since_learned=0,
    requests=9,
    requests_since_learned=0,
    answers=12,
    since=12,
    first_gap=9.0,
    gap=0.5,
    version=3,
    general=None,
    scope=None,
    spoils=None,
    edited=False,
    for_review=False,
    unlearning=None,
    replaced_by=None,
    request="Why?",
    before="Because. And more.",
    after="Because.",
    after_version=2,
)


def point(conversations: int, kept: int, **more: object) -> Point:
    fields = {"seconds": 60.0, "version": 1, "of": 32, "kl": 0.04, "worse": 0, "bad": 0}
    answers = tuple(f"<b>{conversations}</b> {at}" for at in range(32))
    return Point(conversations=conversations, kept=kept, answers=answers, **(fields | more))  # type: ignore[arg-type]


def talk(number: int, *, liked: bool) -> Talk:
    return Talk(number=number, question="How?", answer="So.", liked=liked, reaction="Shorter.")


def played(*points: Point, lessons: tuple[Lesson, ...] = (LESSON,)) -> Played:
    found = Played(identity={"model": "smol", "seed": 0, "judge": "the model itself"}, lessons=list(lessons))
    found.preference, found.ceiling, found.points = "short", 25, list(points)
    return found


def test_a_share_that_rose_by_more_than_chance_is_learned() -> None:
    found = conclusion(played(point(0, 1), point(16, 19)), PERSON, LEARNING)
    assert found.learned
    assert "0.59 of held-out answers in place of 0.03" in found.sentence
    assert "0.78" in found.sentence


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (10, 4), (16, 20)])
def test_a_share_that_may_be_chance_is_not_learned(before: int, after: int) -> None:
    found = conclusion(played(point(0, before), point(16, after)), PERSON, LEARNING)
    assert not found.learned
    assert "40% of the way" in found.sentence


def test_harm_is_named_next_to_what_was_learned() -> None:
    found = conclusion(played(point(0, 1), point(16, 30, kl=0.3, worse=2, bad=1)), PERSON, LEARNING)
    assert found.learned
    for words in (
        "1 of 32 held-out answers were empty or went round in circles (before learning: 0).",
        "2 answers to other requests became worse",
        "0.30 nats",
    ):
        assert words in found.sentence


def test_without_a_teachable_preference_nothing_can_be_learned() -> None:
    nothing = replace(LESSON, told=0)
    found = conclusion(played(lessons=(nothing,)), None, LEARNING)
    assert not found.learned
    assert "It cannot be taught here" in found.sentence
    assert "0 of 16" in found.sentence


def test_the_reason_is_what_a_stage_reports_if_no_update_was_made() -> None:
    learning = Learning(versions=0, seconds=0, tokens=0, memory_mib=None, troubles=["learn: out of memory"])
    found = conclusion(played(point(0, 1), point(16, 1)), PERSON, learning)
    assert "because learn: out of memory" in found.sentence


def test_a_preference_is_teachable_if_the_hint_makes_a_difference_beyond_chance() -> None:
    assert LESSON.teachable
    assert not replace(LESSON, alone=11).teachable
    assert not replace(LESSON, told=1).teachable
    assert replace(LESSON, told=5).teachable


def test_three_liked_answers_in_a_row_are_counted_from_the_first_conversation() -> None:
    liked = [False, True, True, False, True, True, True, True]
    talks = [talk(number, liked=each) for number, each in enumerate(liked)]
    assert satisfied_after(talks) == 7
    assert satisfied_after(talks[:6]) is None


def test_what_was_found_survives_the_file(tmp_path: Path) -> None:
    found = played(point(0, 1), point(16, 19))
    found.talks, found.untouched = [talk(0, liked=True)], ("a", "b")
    found.texts = [{"prompt_ids": [1], "ids": [2], "logprob": -1.5}]
    found.write(tmp_path / "trial.json")
    read = Played.read(tmp_path / "trial.json")
    assert read.points[1].kept == 19
    assert (read.talks, read.lessons, read.untouched) == (found.talks, found.lessons, found.untouched)
    assert json.dumps(read.texts) == json.dumps(found.texts)


def test_the_page_shows_answers_as_text_and_the_teacher_as_a_line(tmp_path: Path) -> None:
    found = played(point(0, 1), point(16, 19))
    found.talks = [talk(0, liked=False)]
    write(found, PERSON, LEARNING, [PRACTISED], {}, tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;16&lt;/b&gt; 0" in page
    assert "<b>16</b>" not in page
    assert "Answer in &lt;one&gt; sentence" in page
    assert "learned since version 3: it answers as a model that reads it; given twice in 9 requests" in page
    assert page.count("<polyline") == 2
    facts = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert facts["learned"]
    assert facts["satisfied_after"] is None
    assert (tmp_path / "learning.svg").read_text(encoding="utf-8").startswith("<svg xmlns")


def test_a_model_that_cannot_be_taught_gets_a_page_without_pictures(tmp_path: Path) -> None:
    write(played(lessons=(replace(LESSON, told=0),)), None, LEARNING, [], {}, tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "It cannot be taught here" in page
    assert "<svg" not in page
