"""Three exchanges with known answers, and what follows from a judge's answers to them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from afterwit.judging.exam import ABLE, EXAM, Ability, Mark, better, sample
from afterwit.judging.polarity import Border, Borders
from afterwit.judging.settings import JudgeSettings, judge_prompts
from afterwit.judging.voting import Answer, quotes
from tests.fakes.judge import HINT

RIGHT = {"thanks": r"\boxed{1}", "complaint": r"\boxed{-1}", "correction": HINT}
TOLD = Border(weights=(), parts=(), at=0.0, near=0.0, found=36, of=36, taken=1, others=40)


def marks(*answers: Answer | str) -> tuple[Mark, ...]:
    given = [Answer(words=each) if isinstance(each, str) else each for each in answers]
    return tuple(case.marked(answer) for case, answer in zip(EXAM, given, strict=True))


def test_a_judge_that_answers_rightly_votes_and_hints():
    assert marks(*RIGHT.values()) == ABLE.marks
    assert (ABLE.votes, ABLE.hints, ABLE.fault("It")) == (True, True, None)
    assert [case.name for case in EXAM] == list(RIGHT)
    prompts = judge_prompts(JudgeSettings())
    assert all(prompts.messages(case.question, case.view)[0].role == "system" for case in EXAM)


def test_a_judge_that_says_the_same_of_all_cannot_judge():
    for word in (1, 0, -1):
        found = Ability(marks=marks(*[rf"\boxed{{{word}}}"] * 3))
        assert not found.votes
        assert "of 3 probes were judged right" in (found.fault("It") or "")


def test_a_judge_that_writes_no_hints_still_votes():
    found = Ability(marks=marks(RIGHT["thanks"], RIGHT["complaint"], "It should be short."))
    assert (found.votes, found.hints, found.fault("It")) == (True, False, None)


@pytest.mark.parametrize(
    ("answer", "why", "remedy"),
    [
        (Answer(words="It is good."), "0 of 3 probe answers carried a readable vote", "judge.url"),
        (Answer(words="It is good. " * 99, finished=False), "0 of 3 probe answers", "judge.url"),
        (Answer(words="<think>Well,", finished=False), "still thinking", "judge.max_tokens"),
        (Answer(words="", finished=False), "still thinking", "judge.max_tokens"),
    ],
)
def test_the_advice_fits_the_cause(answer, why, remedy):
    said = Ability(marks=marks(answer, answer, answer)).fault("This model")
    assert said is not None
    assert said.startswith(
        f"This model cannot judge: {why}" if "probe" in why else "This model cannot judge:"
    )
    assert why in said
    assert remedy in said
    assert ("judge.max_tokens" in said) is (remedy == "judge.max_tokens")


UNABLE = marks("?", "?", "?")
READS = Borders(complaint=TOLD, thanks=replace(TOLD, found=4))
MIXED = Borders(complaint=replace(TOLD, found=15), thanks=TOLD)


@pytest.mark.parametrize(
    ("found", "votes", "hints", "reads", "fault"),
    [
        (Ability(marks=UNABLE), False, False, False, "0 of 3 probe answers"),
        (Ability(marks=UNABLE, replies=READS), False, False, True, None),
        (Ability(marks=UNABLE, replies=MIXED), False, False, False, "0 of 3 probe answers"),
        (Ability(mode="write", marks=UNABLE), True, True, False, "Its votes count nevertheless"),
        (Ability(mode="write", marks=ABLE.marks), True, True, False, None),
        (Ability(mode="read", replies=READS), False, False, True, None),
        (Ability(mode="read", replies=MIXED), False, False, False, "15 of 36 complaints (27% to 58%)"),
        (Ability(mode="read"), False, False, False, "its log-probs are not available"),
        (replace(ABLE, right=20, of=24), True, True, False, None),
        (replace(ABLE, right=20, of=24, replies=READS), True, True, True, None),
        (replace(ABLE, right=12, of=24, replies=READS), False, False, True, None),
        (replace(ABLE, right=12, of=24, replies=MIXED), True, True, False, None),
    ],
)
def test_the_better_of_writing_and_reading_judges_or_neither(found, votes, hints, reads, fault):
    assert (found.votes, found.hints, found.reads) == (votes, hints, reads)
    said = found.fault("It")
    assert said is None if fault is None else fault in (said or "")
    assert ("does not judge" in found.described()) is not (votes or reads)


def test_how_it_judges_is_said_with_intervals():
    assert replace(ABLE, right=20, of=24).described() == (
        "it writes votes (20 of 24 shipped replies right), and hints"
    )
    assert Ability(marks=UNABLE, replies=READS).described() == (
        "it reads replies: it finds 36 of 36 complaints (90% to 100%) and takes 1 of 40 others for one."
        " People's own words are the hints"
    )


def test_the_sample_has_replies_of_each_kind():
    cases = sample()
    assert Counter(case.name for case in cases) == {"complaint": 8, "thanks": 8, "neutral": 8}
    assert len({case.reply for case in cases}) == 24
    by_kind = {case.name: case for case in cases}
    for kind, right in (("complaint", {-1}), ("thanks", {1}), ("neutral", {0, 1})):
        given = {vote: by_kind[kind].marked(Answer(words=rf"\boxed{{{vote}}}")).right for vote in (-1, 0, 1)}
        assert {vote for vote, is_right in given.items() if is_right} == right


def test_of_two_tries_the_better_counts():
    first, second = marks("?", RIGHT["complaint"], "?"), marks(RIGHT["thanks"], "?", HINT)
    assert better(first, second) == ABLE.marks


def test_the_hint_of_the_exam_is_no_quotation():
    (correction,) = [case for case in EXAM if case.name == "correction"]
    said = [message.content or "" for message in correction.view.next_state]
    assert not quotes("Answer with one word and nothing else.", said, words=8)
