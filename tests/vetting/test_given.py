"""Hints and better answers that a person gives."""

from __future__ import annotations

from dataclasses import replace

from afterwit.judging.settings import JudgeSettings
from afterwit.judging.voting import VoteRules
from afterwit.practice.lessons import names_a_case
from afterwit.verdict import Feedback, NextState, Question, Reads, Source, Verdict
from afterwit.vetting.own_words import demonstration, is_demonstration, with_given

RULES = JudgeSettings().rules(Reads())
VERDICT = Verdict(reward=-1, source=Source.VOTES, hints=("Read the file before you edit it.",))


def given(rules: VoteRules = RULES, **said: str) -> tuple[str, ...]:
    return with_given(VERDICT, NextState(feedback=Feedback(reward=0, **said)), rules).hints


def test_words_that_teach_nothing_in_particular_leave_the_verdict_as_it_is() -> None:
    assert given() == given(text="No, shorter.") == VERDICT.hints


def test_a_better_answer_stands_in_the_prompt_as_an_example_and_asks_for_own_words() -> None:
    (shown,) = given(correction="It is in b.txt.")
    assert shown == (
        "Here is an example of a good answer:\n\nIt is in b.txt.\n\nNow answer in your own words."
    )
    assert is_demonstration(shown)
    assert not is_demonstration("Here is an example of a good answer: be brief.")


def test_both_come_shortest_first_and_follow_the_rules_of_the_judges_hints() -> None:
    said = {"hint": "Name the file and its line in one short sentence.", "correction": "b.txt, line 3"}
    both = (said["hint"], demonstration(said["correction"]))
    assert given(**said) == both
    assert given(replace(RULES, max_candidates=1), **said) == both[:1]
    assert given(replace(RULES, reads=Reads(keeps_longest=True)), **said) == both[1:]


def test_the_reward_stays_and_the_votes_show_whose_words_the_hints_are() -> None:
    found = with_given(VERDICT, NextState(feedback=Feedback(hint="Answer in one line.")), RULES)
    assert (found.reward, found.source, found.own_words) == (-1, Source.VOTES, True)
    assert [vote.question for vote in found.votes] == [Question.OWN_WORDS]


def test_a_better_answer_is_practised_on_its_own_prompt_alone() -> None:
    requests = ("sort the files", "name the files", "count the files")
    assert names_a_case(demonstration("Use a list."), "sort the files", requests)
    assert not names_a_case("Always use a list.", "sort the files", requests)
