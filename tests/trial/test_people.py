"""The people of a trial: which answers they like, what they say, and the judge that understands them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from afterwit.errors import SettingError
from afterwit.trial.people import (
    CHECKS,
    Person,
    Said,
    competent_judge,
    got_worse,
    is_bad,
    names,
    read_problems,
    words,
)
from afterwit.turn import ToolCall
from tests.timing import check_linear

PROBLEMS = [{"question": f"What is {n} + {n}?", "answer": f"{2 * n}"} for n in range(60)]
LONG = "The egg is boiled in hot water. " * 9


def person(preference: str, seed: int = 0) -> Person:
    return Person(preference=preference, seed=seed, problems=PROBLEMS)


def search(arguments: str) -> Said:
    return Said(content="", calls=(ToolCall(id="call_1", name="search", arguments=arguments),))


@pytest.mark.parametrize(
    ("preference", "liked", "disliked"),
    [
        ("short", Said("Boil it for eight minutes."), Said(LONG)),
        ("short", Said("word " * 25), Said("")),
        ("sentence", Said("Boil it for 8.5 minutes, then cool it."), Said("Boil it. Then cool it.")),
        ("sentence", Said('He said "wait."'), Said("- boil\n- cool.")),
        ("greeting", Said("Hello there! Boil it."), Said("Boil it. Hello.")),
        ("name", Said("Boil it, Ana."), Said("Boil a banana.")),
        ("plain", Said("Just boil it a bit."), Said("Additionally, ensure that it boils.")),
        ("plain", Said("Boil it, then 2. cool it."), Said("1. Boil it.\n2. Cool it.")),
        ("json", Said('{"answer": "Boil it.", "sure": true}'), Said('{"answer": "Boil it."}')),
        (
            "json",
            Said('```json\n{"answer": "x", "sure": false}\n```'),
            Said('Sure: {"answer": "x", "sure": true}'),
        ),
        ("json", Said('{"answer": "x", "sure": false}'), Said("[" * 100_000)),
        ("dates", Said("It was on 1969-07-20."), Said("It was on July 20, 1969, so 1969-07-20.")),
        ("dates", Said("1969-07-20"), Said("It was in 1969.")),
        ("limit", search('{"query": "eggs", "limit": 3}'), search('{"query": "eggs"}')),
        ("limit", search('{"limit": 3}'), search('{"limit": 3')),
        ("student", Said("I added both and got 4."), Said("**Step 1:** add both.")),
        ("teacher", Said("Great work, 4 is right!"), Said("Great work!")),
    ],
)
def test_a_person_likes_the_one_answer_and_not_the_other(
    preference: str, liked: Said, disliked: Said
) -> None:
    assert person(preference).likes(liked)
    assert not person(preference).likes(disliked)


@pytest.mark.parametrize("preference", CHECKS)
def test_an_answer_is_read_in_linear_time(preference: str) -> None:
    for piece in ("\n", " ", ".", ".'", "1", "1 ", "#", "```"):

        def make(size: int, piece: str = piece) -> Said:
            return Said("." + piece * (size // len(piece)) + "x")

        check_linear(CHECKS[preference], make, 2_000)


def test_every_preference_has_a_check_and_words() -> None:
    assert set(CHECKS) == set(words()["preferences"])
    for name in CHECKS:
        its = person(name)
        assert its.wants
        assert len(its.complaints) >= 3
        assert len(its.hints) >= 2
        assert len(its.measured) == 32


@pytest.mark.parametrize("preference", sorted(CHECKS))
def test_no_held_out_question_is_asked_in_a_conversation(preference: str) -> None:
    for seed in range(3):
        its = person(preference, seed)
        assert not set(its.measured) & set(its.questions(0, 200))


def test_questions_go_on_where_the_last_ones_ended() -> None:
    its = person("short")
    assert its.questions(0, 40) == its.questions(0, 16) + its.questions(16, 24)


def test_a_model_without_calls_gets_no_tool_and_without_problems_no_homework() -> None:
    assert set(CHECKS) - set(names(tools=False, problems=False)) == {"limit", "student", "teacher"}
    assert set(names(tools=True, problems=True)) == set(CHECKS)


@pytest.mark.parametrize("preference", sorted(CHECKS))
def test_the_competent_judge_takes_the_last_words_of_the_person(preference: str) -> None:
    its = person(preference)
    judge = competent_judge([its])
    complaint, thanks = its.reaction(False, "a"), its.reaction(True, "b")

    def asked(question: str, *said: str) -> str:
        shown = "\n".join(["[BEGIN the response]", "An answer.", *said])
        return judge([{"role": "system", "content": question}, {"role": "user", "content": shown}])

    assert asked("vote", complaint) == r"\boxed{-1}"
    assert asked("vote", complaint, "Another answer.", thanks) == r"\boxed{1}"
    assert asked("vote", "What time is it?") == r"\boxed{0}"
    assert asked("HINT_START", thanks) == r"\boxed{-1}"
    hinted = asked("HINT_START", complaint)
    assert any(f"[HINT_START]{hint}[HINT_END]" in hinted for hint in its.hints)


def test_a_judge_of_several_people_hints_at_what_the_last_one_to_speak_wants() -> None:
    everyone = [person(name) for name in CHECKS]
    judge = competent_judge(everyone)
    for one in everyone:
        shown = f"An answer. {everyone[0].reaction(False, 'a')} Another. {one.reaction(False, 'b')}"
        said = judge([{"role": "system", "content": "HINT_START"}, {"role": "user", "content": shown}])
        assert said.partition("[HINT_START]")[2].removesuffix("[HINT_END]") in one.hints


def test_an_answer_is_bad_if_it_is_empty_or_circles() -> None:
    assert is_bad("  ")
    assert is_bad("and so it goes " * 9)
    assert not is_bad("Boil it for eight minutes, then cool it under cold water.")


def test_an_untaught_answer_got_worse_if_it_is_bad_now_or_a_fact_is_lost() -> None:
    fact = "Who wrote Romeo and Juliet?"
    assert got_worse(fact, "William Shakespeare did.", "Hello!")
    assert not got_worse(fact, "Goethe did.", "Hello!")
    assert not got_worse(fact, "William Shakespeare did.", "Shakespeare.")
    assert got_worse("Describe a sunset.", "It is red.", "")
    assert not got_worse("Describe a sunset.", "", "")


def test_problems_are_read_and_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in PROBLEMS), encoding="utf-8")
    assert read_problems(path) == PROBLEMS
    for broken in ('{"question": "x"}', "[1]", "{", "[" * 100_000):
        path.write_text(f"{json.dumps(PROBLEMS[0])}\n{broken}\n", encoding="utf-8")
        with pytest.raises(SettingError, match="line 2"):
            read_problems(path)
    with pytest.raises(SettingError, match=r"none\.jsonl"):
        read_problems(tmp_path / "none.jsonl")


def test_too_few_problems_are_refused() -> None:
    few = Person(preference="student", seed=0, problems=PROBLEMS[:32])
    with pytest.raises(SettingError, match="too few"):
        few.measured  # noqa: B018 - the property raises
