"""The measured quality of a judge, and the warnings about it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from afterwit.judging.checks import (
    Calibration,
    Judged,
    Outcomes,
    findings,
    judge_report,
    warnings,
)
from afterwit.verdict import Question, Source

GOOD, BAD = (Question.EVALUATION, 1), (Question.EVALUATION, -1)


def judged(seq: int, *votes: tuple[Question, int | None], **changes: Any) -> Judged:
    fields: dict[str, Any] = {
        "seq": seq,
        "turn": f"t{seq}",
        "session": "s",
        "reward": 1,
        "source": Source.VOTES,
        "hinted": False,
        "version": 0,
        "at": 1.0,
        "feedback": None,
        "ended_well": None,
        "votes": votes,
    }
    return Judged(**fields | changes)


def blind(seq: int, vote: int | None, feedback: int | None) -> Judged:
    return judged(seq, (Question.BLIND, vote), feedback=feedback, source=Source.FEEDBACK)


def test_calibration_compares_what_the_judge_said_unseen_with_what_people_said():
    found = Calibration.of(
        [blind(1, 1, 1), blind(2, 1, -1), blind(3, -1, -1), blind(4, 0, 1), blind(5, None, 1), blind(6, 1, 0)]
    )
    assert (found.right.count, found.right.of) == (2, 4)
    assert (found.too_kind.count, found.too_kind.of) == (1, 2)


def test_votes_that_had_read_the_feedback_are_no_calibration():
    assert Calibration.of([judged(1, GOOD, GOOD, GOOD, feedback=-1)]).right.of == 0


def test_steps_share_the_end_of_their_own_request():
    turns = [
        judged(1, GOOD),
        judged(2, BAD),
        judged(3, GOOD, ended_well=True),
        judged(4, GOOD),
        judged(5, GOOD, ended_well=False),
        judged(6, GOOD, session="other"),
    ]
    found = Outcomes.of(turns[::-1])
    assert (found.good.count, found.good.of) == (1, 2)
    assert (found.bad.count, found.bad.of) == (1, 1)


def test_a_good_judge_is_warned_of_by_nothing():
    turns = [judged(at, *[GOOD if at % 3 else BAD] * 3) for at in range(60)]
    assert list(warnings(judge_report(turns))) == []
    assert list(warnings(judge_report([]))) == []


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        (
            [judged(at, GOOD, BAD, GOOD) for at in range(40)],
            "votes on rewards differ as if 50% of its answers",
        ),
        (
            [judged(at, (Question.HINT, 1), (Question.HINT, -1), (Question.HINT, -1)) for at in range(40)],
            "votes on hints differ as if",
        ),
        ([judged(at, (Question.EVALUATION, None)) for at in range(40)], "more than half"),
        ([blind(at, 1, -1) for at in range(12)], "feedback in only 0 of 12 turns"),
    ],
)
def test_what_is_surely_wrong_is_said(turns, words):
    (said,) = warnings(judge_report(turns))
    assert words in said


def test_steps_called_good_that_end_worse_are_told_of():
    turns = []
    for at in range(40):
        good = at % 2 == 0
        turns += [
            judged(2 * at, GOOD if good else BAD, session=f"s{at}"),
            judged(2 * at + 1, GOOD, session=f"s{at}", ended_well=not good),
        ]
    (said,) = warnings(judge_report(turns))
    assert "good (0 of 20)" in said
    assert "bad (20 of 20)" in said


def test_a_judge_that_is_wrong_about_one_kind_alone_is_warned_of_by_its_name():
    rated = [
        judged(n, (Question.BLIND, -feedback if n % 4 == 0 else feedback), feedback=feedback, kind=kind)
        for n in range(80)
        for feedback in (1 if n % 3 else -1,)
        for kind in ("delete path" if n % 4 == 0 else "read path",)
    ]
    report = judge_report(rated)
    (words,) = warnings(report)
    assert words.startswith("the judge agreed with people's feedback on `delete path` in only 0 of 20 votes")
    assert str(report.kinds[0]) == "delete path: agreed with feedback in 0 of 20"
    assert list(warnings(judge_report([each for each in rated if each.kind == "read path"]))) == []


def test_it_is_said_of_which_kinds_no_thumb_checks_the_judge():
    unrated = [judged(n, GOOD, kind="delete path") for n in range(5)]
    assert dict(findings(judge_report(unrated)))["agrees with feedback"].startswith("unchecked: no thumb")
    rated = [blind(10 + n, 1, 1) for n in range(5)]
    assert "no thumbs on `delete path`" in dict(findings(judge_report([*unrated, *rated])))["unchecked"]
    assert "unchecked" not in dict(findings(judge_report(rated)))


def test_a_kind_that_ends_worse_where_it_is_called_good_is_found_though_all_together_looks_right():
    turns = []
    for n in range(60):
        inverted, good, session = n % 4 == 0, n % 2 == 0 if n % 4 else n % 8 == 0, f"s{n}"
        kind = "delete path" if inverted else "read path"
        turns.append(judged(2 * n, GOOD if good else BAD, session=session, kind=kind))
        turns.append(judged(2 * n + 1, GOOD, session=session, ended_well=good != inverted))
    (words,) = warnings(judge_report(turns))
    assert words.startswith("requests end well less often after `delete path` if the judge calls it good")


def test_of_twenty_kinds_with_a_good_judge_none_is_warned_of_by_chance():
    draws = Random(3)
    rated = [
        judged(n, (Question.BLIND, 1 if draws.random() < 0.85 else -1), feedback=1, kind=f"tool{n % 20}")
        for n in range(600)
    ]
    assert list(warnings(judge_report(rated))) == []
