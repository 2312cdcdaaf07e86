"""When a judge's votes are a fault of the judge."""

from __future__ import annotations

import pytest

from afterwit.judging.stage import FEWEST, REMEMBERED, RecentVotes
from afterwit.judging.voting import CUT
from afterwit.verdict import Question, Source, Verdict, Vote


def verdict(*values: int | None) -> Verdict:
    votes = tuple(Vote(question=Question.EVALUATION, words="", value=value) for value in values)
    return Verdict(reward=0, source=Source.VOTES, votes=votes)


@pytest.mark.parametrize(
    ("valid", "invalid", "warns"),
    [(0, FEWEST - 1, False), (0, FEWEST, True), (6, 6, False), (6, 7, True), (60, 0, False), (0, 60, True)],
)
def test_more_than_half_of_enough_votes_is_a_fault(valid, invalid, warns):
    recent = RecentVotes()
    recent.add(verdict(*[1] * valid, *[None] * invalid))
    assert (recent.warning() is not None) is warns


@pytest.mark.parametrize(("cut", "remedy"), [(CUT, "judge.max_tokens"), (None, "judge.url")])
def test_the_remedy_fits_why_votes_are_invalid(cut, remedy):
    recent = RecentVotes()
    vote = Vote(question=Question.EVALUATION, words="", value=None, rejected=cut)
    recent.add(Verdict(reward=0, source=Source.VOTES, votes=(vote,) * FEWEST))
    assert [name in (recent.warning() or "") for name in ("judge.max_tokens", "judge.url")].count(True) == 1
    assert remedy in (recent.warning() or "")


@pytest.mark.parametrize(
    ("turns", "doubtful"),
    [
        ([(1, 1, 1)] * 60, False),
        ([(1, 1, -1)] * 11, False),
        ([(1, 1, -1)] * 12, True),
        ([(1, 1, -1)] * 12 + [(1, 1, 1)] * 48, False),
        ([(1, None, None)] * 60, False),
        ([(1, 1, -1)] * 60 + [(1, 1, 1)] * 60, False),
    ],
)
def test_votes_that_differ_too_often_make_a_judge_doubtful(turns, doubtful):
    recent = RecentVotes()
    for values in turns:
        recent.add(verdict(*values))
    assert recent.doubtful is doubtful


def test_old_votes_are_forgotten():
    recent = RecentVotes()
    recent.add(verdict(*[None] * REMEMBERED))
    recent.add(verdict(*[0] * (REMEMBERED // 2)))
    assert recent.warning() is None


@pytest.mark.parametrize(
    ("evaluations", "hints", "unread"),
    [
        ((), (), False),
        ((0, None), (), False),
        ((None,), (), True),
        ((1,), (None,), True),
        ((1,), (-1,), False),
    ],
)
def test_a_verdict_is_unread_if_all_votes_on_a_question_are_invalid(evaluations, hints, unread):
    votes = [Vote(question=Question.EVALUATION, words="", value=value) for value in evaluations]
    votes += [Vote(question=Question.HINT, words="", value=value) for value in hints]
    assert Verdict(reward=0, source=Source.VOTES, votes=tuple(votes)).unread is unread
