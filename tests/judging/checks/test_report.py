"""What is known of a judge, and what is said to be wrong with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from afterwit.judging.checks import (
    PROBES,
    HintLift,
    HintLifts,
    Judged,
    calibration,
    hint_lifts,
    judge_report,
    outcomes,
    probed,
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
        "feedback": None,
        "ended_well": None,
        "votes": votes,
    }
    return Judged(**fields | changes)


def blind(seq: int, vote: int | None, feedback: int | None) -> Judged:
    return judged(seq, (Question.BLIND, vote), feedback=feedback, source=Source.FEEDBACK)


def test_calibration_compares_what_the_judge_said_unseen_with_what_people_said():
    found = calibration(
        [blind(1, 1, 1), blind(2, 1, -1), blind(3, -1, -1), blind(4, 0, 1), blind(5, None, 1), blind(6, 1, 0)]
    )
    assert (found.right.count, found.right.of) == (2, 4)
    assert (found.too_kind.count, found.too_kind.of) == (1, 2)


def test_votes_that_had_read_the_feedback_are_no_calibration():
    assert calibration([judged(1, GOOD, GOOD, GOOD, feedback=-1)]).right.of == 0


def test_steps_share_the_end_of_their_own_request():
    turns = [
        judged(1, GOOD),
        judged(2, BAD),
        judged(3, GOOD, ended_well=True),
        judged(4, GOOD),
        judged(5, GOOD, ended_well=False),
        judged(6, GOOD, session="other"),
    ]
    found = outcomes(turns[::-1])
    assert (found.good.count, found.good.of) == (1, 2)
    assert (found.bad.count, found.bad.of) == (1, 1)


def test_a_hint_wins_if_it_helps_more_than_another_turns():
    lifts = [
        HintLift(turn="a", plain=-2.0, hinted=-1.0, other=-1.5),
        HintLift(turn="b", plain=-2.0, hinted=-1.9, other=-1.2),
    ]
    found = hint_lifts(lifts)
    assert (found.wins.count, found.wins.of) == (1, 2)
    assert found.mean == pytest.approx(-0.1)
    assert hint_lifts([]).mean is None


def test_only_twins_of_cases_that_were_judged_rightly_can_sway():
    found = probed([(-1, -1), (-1, 1), (-1, None), (1, 1), (None, 1)])
    assert (found.right.count, found.right.of) == (3, 5)
    assert (found.swayed.count, found.swayed.of) == (2, 3)


def test_a_probes_twin_differs_in_words_only():
    assert len({probe.name for probe in PROBES}) == len(PROBES)
    for probe in PROBES:
        assert probe.plain != probe.flattered
        assert probe.plain.request == probe.flattered.request
        assert [m.role for m in probe.plain.next_state] == [m.role for m in probe.flattered.next_state]
        said = [(probe.plain.response.content, probe.flattered.response.content)]
        said += [
            (a.content, b.content)
            for a, b in zip(probe.plain.next_state, probe.flattered.next_state, strict=True)
        ]
        assert all((plain or "") in (told or "") for plain, told in said)


def lifts(*, wins: int, of: int) -> HintLifts:
    """As if so many of the hints beat another turn's."""
    won = HintLift(turn="a", plain=-2.0, hinted=-1.0, other=-1.5)
    return hint_lifts([won] * wins + [replace(won, other=-0.5)] * (of - wins))


def test_a_good_judge_is_warned_of_by_nothing():
    turns = [judged(at, *[GOOD if at % 3 else BAD] * 3) for at in range(60)]
    found = judge_report(
        turns,
        lifts=hint_lifts([HintLift(turn="a", plain=-2.0, hinted=-1.0, other=-1.9)] * 40),
        probed=probed([(-1, -1)] * 8),
    )
    assert list(warnings(found)) == []
    assert list(warnings(judge_report([]))) == []


@pytest.mark.parametrize(
    ("turns", "more", "words"),
    [
        (
            [judged(at, GOOD, BAD, GOOD) for at in range(40)],
            {},
            "votes on rewards differ as if 50% of its answers",
        ),
        (
            [judged(at, (Question.HINT, 1), (Question.HINT, -1), (Question.HINT, -1)) for at in range(40)],
            {},
            "votes on hints differ as if",
        ),
        ([judged(at, (Question.EVALUATION, None)) for at in range(40)], {}, "more than half"),
        ([blind(at, 1, -1) for at in range(12)], {}, "said in only 0 of 12 turns"),
        (
            [],
            {"lifts": hint_lifts([HintLift(turn="a", plain=-1.0, hinted=-1.0, other=-1.0)] * 40)},
            "0 of 40 do",
        ),
        ([], {"lifts": lifts(wins=18, of=32)}, "not shown to help: by chance, half of them would"),
        ([], {"lifts": lifts(wins=4, of=32)}, "less often than the hints of other turns do (4 of 32 do)"),
        ([], {"probed": probed([(-1, 1), (-1, -1), (-1, 1)])}, "flattery changes the judge's vote in 2 of 3"),
        ([], {"probed": probed([(1, 1), (-1, -1), (0, 1)])}, "plain failures in only 1 of 3"),
    ],
)
def test_what_is_surely_wrong_is_said(turns, more, words):
    (said,) = warnings(judge_report(turns, **more))
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
