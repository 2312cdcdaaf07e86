"""A published model learns from one person: the person, the judge that knows them, the results."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

import pytest

from afterwit.judging.polarity import REPLIES
from afterwit.judging.prompts import FullPrompts
from afterwit.judging.questions import JudgeView
from afterwit.trial.people import is_bad
from afterwit.turn import Message
from afterwit.verdict import Question
from experiments.published import HELD_OUT, PREFERENCES, WORDS, CompetentJudge, Person, table
from tests.fakes.judge import parse_evaluation, parse_hint

LIKED = {"short": "Five minutes in boiling water.", "greeting": "Hello! Five minutes in boiling water."}
DISLIKED = {"short": "Take a pot. " * 20, "greeting": "Five minutes in boiling water."}
PROMPTS = FullPrompts(
    max_tokens=64, context_chars=999, tools_chars=999, response_chars=9999, next_state_chars=999
)


def view(answer: str, reaction: str) -> JudgeView:
    return JudgeView(
        request="How do I boil an egg?",
        context=(),
        tools=(),
        response=Message(role="assistant", content=answer),
        next_state=(Message(role="user", content=reaction),),
    )


def asked(judge: CompetentJudge, messages: tuple[Message, ...]) -> str:
    return judge([{"role": each.role, "content": each.content or ""} for each in messages])


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_nobody_is_asked_later_what_they_asked(seed: int) -> None:
    person = Person(preference="short", seed=seed)
    questions = set(WORDS["questions"])
    assert len(questions) == len(WORDS["questions"]) >= 100
    assert len(set(person.held_out)) == HELD_OUT
    assert set(person.held_out) | set(person.questions(len(questions))) == questions
    assert not set(person.held_out) & set(person.questions(200))


@pytest.mark.parametrize("preference", PREFERENCES)
def test_the_judge_is_right_of_liked_and_disliked_answers_and_its_hints_count(preference: str) -> None:
    person = Person(preference=preference, seed=3)
    judge = CompetentJudge(person)
    for answers, reward in ((LIKED, 1), (DISLIKED, -1)):
        answer = answers[preference]
        assert person.content(answer) == (reward > 0)
        for number in range(8):
            shown = view(answer, person.reaction(answer, str(number)))
            said = asked(judge, PROMPTS.messages(Question.EVALUATION, shown))
            assert parse_evaluation(said).value == reward
            words = [message.content or "" for message in shown.next_state]
            hint = parse_hint(asked(judge, PROMPTS.messages(Question.HINT, shown)), words, quote_words=8)
            assert (hint.value, bool(hint.hint)) == ((-1, False) if reward > 0 else (1, True))


@pytest.mark.parametrize("preference", PREFERENCES)
def test_no_wording_of_a_hint_quotes_a_complaint(preference: str) -> None:
    words = WORDS["preferences"][preference]
    for hint, said in product(words["hints"], words["said"]):
        vote = parse_hint(rf"\boxed{{1}} [HINT_START]{hint}[HINT_END]", [said], quote_words=8)
        assert vote.hint == hint


@pytest.mark.parametrize(
    ("answer", "found"),
    [("", True), ("  ", True), ("one two three four " * 6, True), ("one two three four " * 3, False)],
)
def test_an_empty_answer_and_one_that_goes_round_are_bad(answer: str, found: bool) -> None:
    assert is_bad(answer) == found


def test_the_table_has_a_row_for_each_run() -> None:
    point = {
        "conversations": 0,
        "share": 0.03,
        "complaints": 0,
        "version": 0,
        "kl": 0.0,
        "bad": 1,
        "words": 50.0,
    }
    later = point | {"conversations": 16, "share": 0.5, "complaints": 15, "kl": 0.06, "bad": 0}
    run = {"judge": "competent", "preference": "short", "seed": 4, "settings": {}, "points": [point, later]}
    lines = table([run | {"seed": 5, "settings": {"learner.lr": 1e-4}}, run]).splitlines()
    assert lines[2] == "| competent | short | 4 | 0.03 (0.00) | 0.50 (0.06) | 15 | 0 |  |"
    assert lines[3] == "| competent | short | 5 | 0.03 (0.00) | 0.50 (0.06) | 15 | 0 | `learner.lr=0.0001` |"


def test_no_shipped_reply_repeats_a_person_of_the_experiment() -> None:
    """No run of four words: the reader is measured on persons that it was not fitted on."""

    def runs(said: Iterable[str]) -> set[tuple[str, ...]]:
        words = [re.findall(r"\w+", each.lower()) for each in said]
        return {tuple(each[at : at + 4]) for each in words for at in range(len(each) - 3)}

    persons = [each for one in (WORDS["thanks"], *WORDS["preferences"].values()) for each in one["said"]]
    shipped = [each for said in (*REPLIES.texts.values(), *REPLIES.examples.values()) for each in said]
    assert not runs(persons) & runs(shipped)
    assert not set(persons) & set(shipped)
