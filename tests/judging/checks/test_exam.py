"""Three exchanges with known answers, and what follows from a judge's answers to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from afterwit.judging.exam import ABLE, EXAM, Ability, Mark, better
from afterwit.judging.polarity import Border, Borders
from afterwit.judging.voting import Answer, quotes
from tests.fakes.judge import HINT
from tests.judging.stage.house import PROMPTS

RIGHT = {"thanks": r"\boxed{1}", "complaint": r"\boxed{-1}", "correction": HINT}
TOLD = Border(weights=(), at=0.0, near=0.0, found=36, of=36)


def marks(*answers: Answer | str) -> tuple[Mark, ...]:
    given = [Answer(words=each) if isinstance(each, str) else each for each in answers]
    return tuple(case.marked(answer) for case, answer in zip(EXAM, given, strict=True))


def test_a_judge_that_answers_rightly_votes_and_hints():
    assert marks(*RIGHT.values()) == ABLE.marks
    assert (ABLE.votes, ABLE.hints, ABLE.fault("It")) == (True, True, None)
    assert [case.name for case in EXAM] == list(RIGHT)
    assert all(PROMPTS.messages(case.question, case.view)[0].role == "system" for case in EXAM)


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


def test_it_says_what_teaches_meanwhile():
    unable = Ability(marks=marks("?", "?", "?"))
    assert "what you write after a response teach" in (unable.fault("It") or "")
    told = replace(unable, borders=Borders(complaint=TOLD, thanks=TOLD))
    assert "your corrections in your own words teach" in (told.fault("It") or "")


def test_of_two_tries_the_better_counts():
    first, second = marks("?", RIGHT["complaint"], "?"), marks(RIGHT["thanks"], "?", HINT)
    assert better(first, second) == ABLE.marks


def test_the_hint_of_the_exam_is_no_quotation():
    (correction,) = [case for case in EXAM if case.name == "correction"]
    said = [message.content or "" for message in correction.view.next_state]
    assert not quotes("Answer with one word and nothing else.", said, words=8)
