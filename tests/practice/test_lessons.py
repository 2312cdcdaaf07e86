"""Hints that make one lesson, lessons that are spread, and when a lesson is learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import (
    CLOSE,
    DAY_S,
    FEWEST_TO_SETTLE,
    LEAST_STEP,
    WINDOW,
    Correction,
    Given,
    Lesson,
    PractisedAnswer,
    Progress,
    Wording,
    alike,
    best_supported,
    hint_of,
    in_turn,
    learned_at,
    names_a_case,
    progress_of,
    replaced,
    rests,
    rests_all,
    spread,
    standing,
    step_of,
)
from afterwit.promotion.episodes import Event, EventKind
from afterwit.ranges import in_hours, times_of_day
from afterwit.turn import SHARED
from afterwit.verdict import Question, Vote
from afterwit.vetting.own_words import demonstration

SHORT = "Keep the answer short."


def correction(at: float = 0.0, words: str = SHORT, **changes: Any) -> Correction:
    known: dict[str, Any] = {"turn": f"said{at}", "session": "talk", "scope": "key/agent"}
    return Correction(
        **known | {"words": words, "given": at, "at": at, "state": State.TRAINED, "reason": None} | changes
    )


def answer(at: float, gap: float | None = 5.0, **changes: Any) -> PractisedAnswer:
    known: dict[str, Any] = {"turn": f"answer{at}", "prompt": "prompt", "at": at, "version": 1}
    return PractisedAnswer(**known | {"state": State.TRAINED, "reason": None, "gap": gap} | changes)


def lesson(*answers: PractisedAnswer, number: int = 1, **changes: Any) -> Lesson:
    known: dict[str, Any] = {
        "number": number,
        "source": "key",
        "words": SHORT,
        "corrections": (correction(),),
    }
    return Lesson(**known | {"answers": answers} | changes)


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        ("Keep it short.", "keep it short", True),
        ("Please keep your answers short.", "Keep the reply short!", True),
        ("Answer in at most two sentences.", "Answer with at most two sentences.", True),
        (
            "Ask for a dry run before you delete a folder.",
            "Ask for a dry run before deleting a folder.",
            True,
        ),
        ("Answer in at most 2 sentences.", "Answer in at most 3 sentences.", False),
        ("Use bullet lists in long answers.", "Use no bullet lists in long answers.", False),
        ("Use metric units.", "Use imperial units.", False),
        ("Keep it short.", "Greet the person by name.", False),
        ("Keep it short.", "Too long, shorter please.", False),
        (
            "Write much longer answers about code, with examples.",
            "Write much shorter answers about code, with examples.",
            False,
        ),
        (
            "Antworte in kurzen klaren Sätzen auf Deutsch, mit Beispielen.",
            "Antworte nicht in kurzen klaren Sätzen auf Deutsch, mit Beispielen.",
            False,
        ),
        (
            "Réponds toujours avec des listes courtes et claires, mon ami.",
            "Réponds toujours sans des listes courtes et claires, mon ami.",
            False,
        ),
        (demonstration("It is in b.txt. " * 40), demonstration("It is in b.txt. " * 40), True),
        (demonstration("It is in b.txt. " * 40), demonstration("It is in b.txt. " * 40 + "Or not."), False),
    ],
)
def test_hints_with_most_words_in_common_are_one_lesson(one: str, other: str, are: bool) -> None:
    assert alike(one, other) is are


@pytest.mark.parametrize(
    ("later", "earlier", "is_replaced"),
    [
        ("Answer in at most 3 sentences.", "Please answer in at most 2 sentences.", True),
        ("Answer in two sentences.", "Answer in one sentence.", True),
        ("Write longer answers.", "Write shorter answers.", True),
        ("Use no bullet lists.", "Use bullet lists.", True),
        ("Use bullet lists.", "Use bullet lists, please.", False),
        ("Use no bullet lists.", "Use no tables.", False),
        ("Answer in at most 3 sentences.", "Answer in at most 25 words.", False),
        ("Never do that.", "Don't do it like this.", False),
        (demonstration("It is in 3."), demonstration("It is in 2."), False),
    ],
)
def test_a_later_lesson_replaces_one_that_differs_in_a_number_or_a_negation(
    later: str, earlier: str, is_replaced: bool
) -> None:
    first, last = (
        Given(number, SHARED, "key", None, words, dropped=False)
        for number, words in ((1, earlier), (2, later))
    )
    assert replaced([last, first]) == ({1: 2} if is_replaced else {})
    assert replaced([last._replace(source="other"), first]) == {}
    assert replaced([last._replace(scope="key/chat"), first]) == {}
    assert replaced([last._replace(dropped=True), first]) == {}


@given(st.text(max_size=60), st.text(max_size=60))
def test_likeness_is_mutual_and_every_hint_is_like_itself(one: str, other: str) -> None:
    assert alike(one, one)
    assert alike(one, other) is alike(other, one)


OTHERS = ["What is a monad?", "Explain the tides.", "Who wrote this song?"]


@pytest.mark.parametrize(
    ("hint", "request_", "is_case"),
    [
        ("Keep it short.", "Explain the moon to me.", False),
        ("Answer in at most two sentences.", "Explain the moon to me.", False),
        ("Call me Ana.", "Hello!", False),
        ("Explain in plain words.", "Explain the moon to me.", False),
        ("The brush is Oscar's.", "Whose brush is it?", True),
        ("The flight leaves at 14:30.", "When does it leave?", True),
        ("Boil the eggs for longer.", "How do I boil eggs?", True),
        ("Explain it in plain words, step by step. " * 14 + "Oscar's brush is red.", "Explain it.", True),
    ],
)
def test_a_hint_that_names_its_own_case_is_not_spread(hint: str, request_: str, is_case: bool) -> None:
    assert names_a_case(hint, request_, OTHERS) is is_case


def test_a_word_is_a_cases_own_only_if_there_are_others_to_compare_with() -> None:
    assert not names_a_case("Boil the eggs for longer.", "How do I boil eggs?", OTHERS[:2])
    assert not names_a_case("Boil the eggs for longer.", "How do I boil eggs?", [*OTHERS, "boil the eggs"])
    assert not names_a_case(
        "Boil the eggs for longer.", "How do I boil eggs?", OTHERS, tools="boil_eggs time"
    )


def test_a_lesson_is_learned_once_its_answers_hardly_differ_from_the_teachers() -> None:
    assert progress_of([], first=None) == (Progress.PRACTISING, None)
    assert progress_of([0.0] * (WINDOW - 1), first=9.0)[0] is Progress.PRACTISING  # too few to tell
    assert progress_of([CLOSE] * WINDOW, first=CLOSE)[0] is Progress.LEARNED
    assert progress_of([3.0] * WINDOW, first=30.0)[0] is Progress.LEARNED  # a tenth is left
    assert progress_of([3.0] * WINDOW, first=9.0)[0] is Progress.PRACTISING


def test_a_gap_that_no_longer_falls_ends_practice_and_one_that_falls_does_not() -> None:
    flat, falling = [4.0] * FEWEST_TO_SETTLE, [80.0 - at for at in range(FEWEST_TO_SETTLE)]
    assert progress_of(flat, first=4.0)[0] is Progress.SETTLED
    assert progress_of(flat[1:], first=4.0)[0] is Progress.PRACTISING
    assert progress_of(falling, first=80.0)[0] is Progress.PRACTISING
    uneven = [80.0 - at + (6.0 if at // WINDOW % 2 else -6.0) for at in range(FEWEST_TO_SETTLE)]
    assert progress_of(uneven, first=80.0)[0] is Progress.PRACTISING  # it falls, though not at every moment


def test_only_what_trained_since_it_was_said_last_counts_and_a_new_correction_begins_again() -> None:
    before = [answer(1.0 + at, gap=0.1) for at in range(WINDOW)]
    assert standing(lesson(*before)).progress is Progress.LEARNED
    again = lesson(*before, corrections=(correction(), correction(50.0)))
    assert standing(again).progress is Progress.PRACTISING
    good = [replace(each, state=State.SKIPPED, reason=Reason.ALREADY_GOOD) for each in before]
    assert standing(lesson(*good)).progress is Progress.LEARNED  # nothing to teach is nothing left to learn
    taken_back = [answer(1.0 + at, gap=0.1, state=State.SKIPPED) for at in range(WINDOW)]
    assert standing(lesson(*taken_back)) == (Progress.PRACTISING, None, None, None)
    assert standing(lesson(*before, dropped=60.0)).progress is Progress.DROPPED


@given(
    st.lists(st.tuples(st.integers(1, 60), st.sampled_from([0.2, 3.0, 9.0])), max_size=80),
    st.sets(st.integers(0, 60), max_size=3),
)
def test_a_lesson_was_learned_at_the_first_moment_at_which_it_stood_as_learned(answered, said_again) -> None:
    answers = [answer(float(at), gap) for at, gap in sorted(answered, key=lambda each: each[0])]
    said_at = [0.0, *sorted(map(float, said_again - {0}))]

    def stood(at: float) -> Progress:
        known = [each for each in answers if each.at <= at]
        return standing(
            lesson(*known, corrections=tuple(correction(each) for each in said_at if each < at))
        ).progress

    moments = sorted({each.at for each in answers})
    first = next((at for at in moments if stood(at) in (Progress.LEARNED, Progress.SETTLED)), None)
    assert learned_at(lesson(*answers, corrections=tuple(map(correction, said_at)))) == first


def test_a_lesson_rests_when_it_was_practised_enough_or_an_update_with_it_was_held() -> None:
    many = lesson(*(answer(1.0 + at) for at in range(8)))
    assert rests(many, now=20.0, most=9) is None
    assert rests(many, now=20.0, most=8) is not None
    assert rests(many, now=20.0 + DAY_S, most=8) is None  # the next day
    good = tuple(replace(each, reason=Reason.ALREADY_GOOD) for each in many.answers)
    assert rests(lesson(*many.answers[:7], *good), now=20.0, most=8) is None  # fifteen, and seven taught
    assert rests(lesson(*good[:4], along=good), now=20.0, most=8) is None
    assert rests(lesson(*good[:4], along=7 * good), now=20.0, most=8) is not None
    held = lesson(answer(1.0, state=State.SKIPPED, reason=Reason.HELD_BACK))
    assert rests(held, now=2.0, most=8) is not None
    said_again = lesson(held.answers[0], corrections=(correction(), correction(3.0)))
    assert rests(said_again, now=4.0, most=8) is None


@pytest.mark.parametrize(
    ("earlier", "words", "hint"),
    [
        ((), "keep it\nshort", "keep it\nshort"),
        (("Greet me.", "use  lists"), "keep it short", "Greet me. use lists. keep it short."),
        (("短く。",), "Why so long?", "短く。 Why so long?"),
        (("Greet me",), "", "Greet me."),
    ],
)
def test_a_hint_is_the_earlier_lessons_as_sentences_then_the_words(earlier, words, hint) -> None:
    lessons = [lesson(corrections=(correction(words=each),), words=each) for each in earlier]
    assert hint_of([Wording(each, each.corrections[0]) for each in lessons], words) == hint


def test_a_step_of_practice_is_as_long_as_the_lesson_with_most_to_teach_has_left() -> None:
    def practised(*newest: float) -> Lesson:
        return lesson(*(answer(float(at), gap) for at, gap in enumerate((*[10.0] * 8, *newest), start=1)))

    assert step_of([]) == step_of([lesson()]) == step_of([practised()]) == 1.0
    assert step_of([practised(*[5.0] * 8)]) == pytest.approx(0.5)
    assert step_of([practised(*[5.0] * 4)]) == pytest.approx(0.75)
    assert step_of([practised(*[-1.0] * 8)]) == step_of([practised(*[0.1] * 8)]) == LEAST_STEP
    assert step_of([practised(*[20.0] * 8)]) == 1.0
    assert step_of([practised(*[4.0] * 8), practised(*[6.0] * 8)]) == pytest.approx(0.6)


def event(kind: EventKind, at: float = 10.0) -> Event:
    return Event(kind=kind, at=at, version=1, evidence=9.0, words=kind.value)


@pytest.mark.parametrize(
    ("kinds", "all_rest"),
    [
        ([], False),
        ([EventKind.HOLD], False),
        ([EventKind.HOLD, EventKind.HOLD], True),
        ([EventKind.ALARM], True),
        ([EventKind.ALARM, EventKind.CONFIRM], False),
        ([EventKind.CONFIRM, EventKind.ALARM], True),
    ],
)
def test_an_alarm_or_two_holds_pause_all_practice_for_a_day(kinds: list[EventKind], all_rest: bool) -> None:
    events = [event(kind) for kind in kinds]
    assert (rests_all(events, now=20.0) is not None) is all_rest
    assert rests_all(events, now=20.0 + DAY_S) is None


def test_the_least_practised_lesson_comes_first_and_the_newest_of_equals() -> None:
    old, new = lesson(number=1), lesson(number=2, corrections=(correction(5.0),))
    practised = lesson(answer(9.0), number=3, corrections=(correction(8.0),))
    assert [each.number for each in in_turn([practised, old, new])] == [2, 1, 3]


def test_answers_go_to_the_prompts_that_were_practised_least() -> None:
    assert spread(["a", "b", "c"], [], 2) == ["a", "b"]
    assert spread(["a", "b", "c"], ["a", "b", "gone"], 2) == ["c", "a"]
    assert spread(["a"], ["a"], 3) == ["a", "a", "a"]
    assert spread([], [], 3) == []


@pytest.mark.parametrize(
    ("hours", "at", "within"),
    [
        (None, (12, 0), True),
        ("22:00-07:00", (23, 30), True),
        ("22:00-07:00", (6, 59), True),
        ("22:00-07:00", (7, 0), False),
        ("9:30-17:00", (9, 29), False),
        ("9:30-17:00", (9, 30), True),
    ],
)
def test_hours_may_pass_midnight(hours: str | None, at: tuple[int, int], within: bool) -> None:
    assert in_hours(hours, *at) is within


@pytest.mark.parametrize("wrong", ["", "22-7", "24:00-07:00", "22:00-07:60", "08:00-08:00", "at night"])
def test_hours_that_cannot_be_read_are_refused_with_an_example(wrong: str) -> None:
    with pytest.raises(ValueError, match="22:00-07:00"):
        times_of_day(wrong)


def test_of_hints_that_differ_the_one_to_practise_is_the_best_supported() -> None:
    votes = [
        Vote(question=Question.HINT, words=hint, value=1, hint=hint)
        for hint in ("Read it first.", "Give the relative path.", "give the relative path")
    ]
    hints = tuple(sorted((vote.hint or "" for vote in votes), key=len))
    assert best_supported(hints, votes) == "give the relative path"
    assert best_supported(hints[:2], votes[:2]) == "Read it first."
    assert best_supported(hints, ()) == "Read it first."
