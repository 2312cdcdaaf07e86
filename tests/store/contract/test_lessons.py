"""Lessons and practised answers: stored whole or not at all, and forgotten with the turns they came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.errors import SettingError, TurnNotFound
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import Fresh, Given, Lesson, Spoils, Wording
from afterwit.store import Filter, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import SHARED, Kind
from afterwit.verdict import Feedback, Source
from afterwit.version import Effect, Origin
from tests.store.examples import a_version, add, add_judged

WORDS = "Keep the answer short."


def corrected(store: Store, id: str, words: str = WORDS, *, now: float = 1.0, **changes: str) -> int:
    add_judged(store, id, now=now, **changes)
    return store.teach(store.turn(id).sampled_turn, words, now=now)


def practised(
    store: Store,
    lesson: Lesson,
    *answers: tuple[str, str],
    now: float = 5.0,
    reason: Reason | None = None,
    earlier: Sequence[Lesson] = (),
) -> bool:
    """Answers of these ids to the prompts of these turns."""
    said = lesson.corrections[-1]
    turns = [
        replace(
            store.turn(prompt).sampled_turn,
            id=id,
            session=said.session,
            kind=Kind.PRACTICE,
            parent=None,
            created=now,
        )
        for id, prompt in answers
    ]
    others = tuple(Wording(each, each.corrections[-1]) for each in earlier)
    rows = [
        Fresh(turn, prompt, reason, earlier=others) for turn, (_, prompt) in zip(turns, answers, strict=True)
    ]
    return store.practised(lesson, lesson.words_of(said), rows, now=now)


def test_alike_corrections_of_one_source_are_one_lesson(store: Store) -> None:
    first = corrected(store, "a", session="a")
    assert corrected(store, "b", "Please keep your answers short!", now=2.0, session="b") == first
    assert corrected(store, "c", "Greet the person.", now=3.0, session="c") != first
    assert corrected(store, "d", now=4.0, session="d", scope="other/agent") != first
    lesson = store.lesson(first)
    assert (lesson.words, lesson.source) == (WORDS, "key")
    assert [(each.turn, each.at) for each in lesson.corrections] == [("a", 1.0), ("b", 2.0)]
    assert [each.number for each in store.lessons(said_since=2.5)] == [first + 1, first + 2]


def test_the_lessons_come_in_their_newest_words_the_last_given_first(store: Store) -> None:
    first = corrected(store, "a", session="a")
    other = corrected(store, "b", "Greet the person.", now=2.0, session="b")
    corrected(store, "c", "Please keep your answers short!", now=3.0, session="c")
    greet = Given(other, SHARED, "key", None, "Greet the person.", dropped=False)
    short = Given(first, SHARED, "key", None, "Please keep your answers short!", dropped=False)
    assert store.lessons_given() == [short, greet]
    store.change_lesson(first, words="Short, please.", scope="key/chat")
    store.change_lesson(other, dropped=4.0)
    edited = short._replace(words="Short, please.", scope="key/chat")
    assert store.lessons_given() == [edited, greet._replace(dropped=True)]


def test_a_turn_that_is_judged_again_leaves_its_lesson(store: Store) -> None:
    first = corrected(store, "a")
    second = store.teach(store.turn("a").sampled_turn, "Greet the person.", now=2.0)
    assert [each.number for each in store.lessons()] == [second] != [first]
    store.untaught("a")
    assert store.lessons() == []


def test_a_practised_answer_waits_for_the_learner_with_the_lesson_as_its_only_hint(store: Store) -> None:
    number = corrected(store, "a")
    assert practised(store, store.lesson(number), ("p1", "a"), ("p2", "a"))
    record = store.turn("p1")
    assert (record.state, record.turn.kind, record.turn.session) == (State.JUDGED, Kind.PRACTICE, "session")
    assert record.verdict is not None
    assert (record.verdict.reward, record.verdict.source) == (0, Source.LESSON)
    assert (record.verdict.hints, record.rl, record.opd) == ((WORDS,), False, True)
    assert [each.turn for each in store.waiting(now=9.0)] == ["a", "p1", "p2"]
    assert store.practised_since(4.0, until=5.0) == (2, 2)
    assert [each.prompt for each in store.lesson(number).answers] == ["a", "a"]


def test_practice_is_no_ones_parent_and_no_part_of_what_people_said(store: Store) -> None:
    number = corrected(store, "a")
    judged, sources = store.judged_turns(limit=9), store.source_lines(newest=9)
    practised(store, store.lesson(number), ("p1", "a"))
    assert [each.turn for each in store.replies("key/agent", ["session"])] == ["a"]
    assert [each.turn for each in store.recent("key/agent")] == ["a"]
    assert {each.turn for each in store.candidates("key/agent", [b"prompt a"], [])} == {"a"}
    assert (store.judged_turns(limit=9), store.source_lines(newest=9)) == (judged, sources)
    assert [line.turns for line in store.session_lines()] == [1]
    assert [each.turn for each in store.turn_lines(Filter(kind=Kind.PRACTICE))] == ["p1"]
    assert [id for _, id, _, _ in store.prompts(store.lesson(number), limit=9)] == ["a"]


def test_prompts_and_lessons_are_of_the_source_or_of_one_client(store: Store) -> None:
    number = corrected(store, "a", scope="key/one")
    add(store, "b", scope="key/two")
    add(store, "c", scope="other/one")
    for scope, prompts in ((None, ["b", "a"]), ("key/one", ["a"]), ("key/two", ["b"])):
        store.change_lesson(number, scope=scope)
        assert store.lesson(number).scope == scope
        assert [id for _, id, _, _ in store.prompts(store.lesson(number), limit=9)] == prompts
    assert store.lessons_on(["a", "b", "none"]) == {"a": (number, WORDS)}
    assert [line.turn for line in store.turn_lines(Filter(practised=False))] == ["c", "b", "a"]


def test_the_same_practice_is_stored_once_and_none_for_a_lesson_that_changed(store: Store) -> None:
    number = corrected(store, "a")
    seen = store.lesson(number)
    assert practised(store, seen, ("p1", "a"))
    assert not practised(store, seen, ("p2", "a"))  # as a second process that read it before
    seen = store.lesson(number)
    store.change_lesson(number, dropped=6.0)
    assert not practised(store, seen, ("p3", "a"))
    assert [each.turn for each in store.lesson(number).answers] == ["p1"]
    store.change_lesson(number, dropped=None, words="Be brief.")
    assert (store.lesson(number).words, store.lesson(number).edited) == ("Be brief.", True)
    with pytest.raises(SettingError, match="afterwit lessons"):
        store.change_lesson(number + 1, dropped=6.0)


def test_a_turn_that_is_given_its_lesson_again_keeps_it_and_what_a_person_ordered(store: Store) -> None:
    number = corrected(store, "a")
    practised(store, store.lesson(number), ("p1", "a"))
    store.change_lesson(number, words="Be brief.", dropped=6.0)
    assert corrected(store, "b", session="b", now=7.0) == number  # the words before the edit
    for words in (WORDS, "Be brief."):
        assert store.teach(store.turn("a").turn, words, now=8.0) == number
    assert store.lesson(number).dropped == 6.0
    assert [each.turn for each in store.lesson(number).answers] == ["p1"]


def test_no_lesson_gets_the_answers_of_one_that_is_gone(store: Store) -> None:
    number = corrected(store, "a")
    practised(store, store.lesson(number), ("p1", "a"))
    store.untaught("a")
    other = corrected(store, "b", "Greet the person.", session="b")
    assert (store.lesson(other).answers, store.turn_ids(f"lesson:{other}")) == ((), ())


TAKEN_BACK: dict[str, Callable[[Store, int], object]] = {
    "gone": lambda store, number: store.untaught("a"),
    "dropped": lambda store, number: store.change_lesson(number, dropped=6.0),
    "edited": lambda store, number: store.change_lesson(number, words="Be brief."),
    "refused": lambda store, number: store.review(["a"], accept=False, now=6.0),
    "excluded": lambda store, number: store.exclude("other", now=6.0),
}


@pytest.mark.parametrize("how", TAKEN_BACK)
def test_answers_with_a_lesson_that_was_taken_back_wait_no_more(store: Store, how: str) -> None:
    number = corrected(store, "a")
    add(store, "b", session="other")
    practised(store, store.lesson(number), ("p1", "b"))
    store.skip(["p1"], Reason.HELD_BACK, now=5.5)
    TAKEN_BACK[how](store, number)
    store.requeue(["p1"], now=7.0)
    store.end_unfounded(now=8.0)
    assert store.turn("p1").state is State.SKIPPED


def test_answers_with_a_lesson_that_stands_or_that_a_learner_holds_wait_on(store: Store) -> None:
    number = corrected(store, "a")
    practised(store, store.lesson(number), ("p1", "a"), ("p2", "a"))
    assert store.end_unfounded(now=6.0) == 0
    (held,) = [row.seq for row in store.waiting(now=6.0) if row.turn == "p1"]
    store.claim("learn", owner="learner", limit=1, lease_s=9.0, now=6.0, only=[held])
    store.change_lesson(number, dropped=6.0)
    assert store.end_unfounded(now=7.0) == 1
    assert store.turn("p1").state is State.JUDGED


def test_a_rollback_that_takes_the_corrections_back_ends_the_waiting_answers_too(store: Store) -> None:
    number = corrected(store, "a")
    store.commit_version(a_version(1, ["a"]), now=2.0)
    practised(store, store.lesson(number), ("p1", "a"))
    rollback = a_version(2, origin=Origin.ROLLBACK, restores=0, reverts=(1,))
    store.commit_version(rollback, now=6.0)
    store.end_unfounded(now=7.0)
    assert store.turn("p1").reason is Reason.REVERTED


MEANWHILE: dict[str, Callable[[Store, int], object]] = {
    "the prompt was forgotten": lambda store, number: store.forget("other", now=4.0),
    "the prompt was excluded": lambda store, number: store.exclude("other", now=4.0),
    "a correction was forgotten": lambda store, number: store.forget("early", now=4.0),
    "its session was excluded": lambda store, number: store.exclude("session", now=4.0),
    "the lesson was restricted": lambda store, number: store.change_lesson(number, scope="key/agent"),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_nothing_is_stored_that_was_sampled_before(store: Store, what: str) -> None:
    corrected(store, "early", session="early")
    number = corrected(store, "a", now=2.0)
    add(store, "b", session="other")
    seen = store.lesson(number)
    turn = replace(store.turn("b").sampled_turn, id="p1", session="session", kind=Kind.PRACTICE, parent=None)
    MEANWHILE[what](store, number)
    assert not store.practised(seen, WORDS, [Fresh(turn, "b")], now=5.0)
    assert "p1" not in store.scopes(["p1"])


def test_what_went_along_is_no_answer_to_the_lesson_and_is_forgotten_with_it(store: Store) -> None:
    number = corrected(store, "a", session="mine")
    add(store, "b", session="other")
    lesson = store.lesson(number)
    turn = replace(store.turn("b").sampled_turn, id="p1", session="mine", kind=Kind.PRACTICE, parent=None)
    assert store.practised(lesson, WORDS, [Fresh(turn, "b", along=True)], now=5.0)
    (along,) = store.lesson(number).along
    assert (along.turn, along.prompt, store.lesson(number).answers) == ("p1", "b", ())
    verdict = store.turn("p1").verdict
    assert verdict is not None
    assert verdict.hints == ("",)
    assert store.turn_ids("other") == ("b", "p1")
    assert store.turn_ids(f"lesson:{number}") == ("p1",)


def test_whose_approved_turns_a_lesson_contradicts_is_kept(store: Store) -> None:
    number = corrected(store, "a")
    assert store.lesson(number).spoils is None
    store.change_lesson(number, spoils=Spoils.OTHERS)
    assert store.lesson(number).spoils is Spoils.OTHERS


def test_answers_count_as_given_after_the_correction_though_the_clock_was_set_back(store: Store) -> None:
    number = corrected(store, "a", now=1_000.0)
    assert practised(store, store.lesson(number), ("p1", "a"), now=5.0)
    assert [each.turn for each in store.lesson(number).since(1_000.0)] == ["p1"]
    assert store.practised_since(4.0, until=5.0) == (0, 0)  # nor is it one of every day until then


def test_an_update_leaves_the_gap_of_the_whole_answer(store: Store) -> None:
    number = corrected(store, "a")
    practised(store, store.lesson(number), ("p1", "a"))
    effect = Effect(turn="p1", before=-0.5, after=-0.75, hinted_before=-2.0)
    store.commit_version(replace(a_version(1, ["p1"]), effects=(effect,)), now=6.0)
    (answer,) = store.lesson(number).answers
    assert (answer.gap, answer.version, answer.state) == (3.0, 1, State.TRAINED)  # 1.5 nats, two tokens
    assert store.newest_version("shared") == 1
    assert store.trained_since(0.0) == {}  # no one's daily share is used up


def two_sessions(store: Store) -> int:
    """A lesson of the session `mine`, practised on its own prompt (p1) and on one of `other` (p2)."""
    number = corrected(store, "a", session="mine")
    add(store, "b", session="other")
    practised(store, store.lesson(number), ("p1", "a"), ("p2", "b"))
    return number


def test_what_practised_on_a_forgotten_prompt_is_forgotten(store: Store) -> None:
    number = two_sessions(store)
    assert store.turn_ids("other") == ("b", "p2")
    assert store.forget("other", now=9.0) == 2
    assert [each.turn for each in store.lesson(number).answers] == ["p1"]
    with pytest.raises(TurnNotFound):
        store.turn("p2")
    assert store.turn("p1").sampled_turn.prompt_ids == (1, 2, 3)


def test_a_lesson_is_forgotten_with_its_last_correction_and_all_that_practised_it(store: Store) -> None:
    two_sessions(store)
    assert store.turn_ids("mine") == ("a", "p1", "p2")
    store.forget("mine", now=9.0)
    assert store.lessons() == []
    assert store.counts().reasons == {Reason.FORGOTTEN: 3}
    assert store.turn("b").turn.session == "other"


def test_what_practised_a_lesson_can_be_forgotten_alone(store: Store) -> None:
    number = two_sessions(store)
    assert store.turn_ids(f"lesson:{number}") == ("p1", "p2")
    store.forget(f"lesson:{number}", now=9.0)
    lesson = store.lesson(number)
    assert ([each.turn for each in lesson.corrections], lesson.answers) == (["a"], ())


def test_an_excluded_session_ends_what_practised_on_its_prompts(store: Store) -> None:
    two_sessions(store)
    assert store.exclude("other", now=9.0).ended == 2  # b and p2
    assert store.turn("p2").reason is Reason.EXCLUDED
    assert store.turn("p1").state is State.JUDGED


def test_old_practice_and_old_lessons_are_removed_with_their_turns(store: Store) -> None:
    number = two_sessions(store)
    store.skip(["p1", "p2"], Reason.STALE, now=9.0)
    store.prune(now=20.0, max_age_s=10.0, max_bytes=None)
    assert store.lesson(number).answers == ()
    store.skip(["a"], Reason.STALE, now=9.0)
    store.prune(now=20.0, max_age_s=10.0, max_bytes=None)
    assert store.lessons() == []


def test_what_retention_removed_can_still_be_unlearned_while_the_lesson_is_there(store: Store) -> None:
    number = two_sessions(store)
    store.skip(["b"], Reason.STALE, now=9.0)  # only p2's prompt has not trained
    store.commit_version(a_version(1, ["p1", "p2"]), now=9.0)
    store.prune(now=20.0, max_age_s=10.0, max_bytes=None)
    assert store.turn_ids(f"lesson:{number}") == ("p1", "p2")
    assert [each.turn for each in store.lesson(number).answers] == ["p1", "p2"]
    store.forget(f"lesson:{number}", now=21.0)
    assert store.lesson(number).answers == ()


GREET = "Greet the person."


def taught_both(store: Store) -> tuple[int, int]:
    """A lesson of the session `mine`, whose practised answer (p1) was also taught in the words of a lesson of
    the session `early`."""
    first = corrected(store, "a", GREET, session="early")
    number = corrected(store, "b", session="mine")
    assert practised(store, store.lesson(number), ("p1", "b"), earlier=[store.lesson(first)])
    return first, number


def test_an_answer_is_taught_in_the_words_of_lessons_earlier_too(store: Store) -> None:
    first, number = taught_both(store)
    verdict = store.turn("p1").verdict
    assert verdict is not None
    assert verdict.hints == (f"{GREET} {WORDS}",)
    assert [len(store.lesson(each).answers) for each in (first, number)] == [0, 1]
    assert store.lessons_on(["p1"]) == {"p1": (number, WORDS)}


OTHER_TAKEN_BACK: dict[str, Callable[[Store, int], object]] = {
    "dropped": lambda store, number: store.change_lesson(number, dropped=6.0),
    "edited": lambda store, number: store.change_lesson(number, words="Say hello."),
    "restricted": lambda store, number: store.change_lesson(number, scope="key/agent"),
    "judged again": lambda store, number: store.untaught("a"),
    "another lesson": lambda store, number: store.teach(store.turn("a").turn, "Use lists.", now=6.0),
    "excluded": lambda store, number: store.exclude("early", now=6.0),
    "refused": lambda store, number: store.skip(["a"], Reason.REVIEW_REFUSED, now=6.0),
}


@pytest.mark.parametrize("how", OTHER_TAKEN_BACK)
def test_answers_wait_no_more_if_their_teacher_read_what_was_taken_back(store: Store, how: str) -> None:
    first, number = taught_both(store)
    seen, other = store.lesson(number), store.lesson(first)
    assert store.end_unfounded(now=5.5) == 0
    OTHER_TAKEN_BACK[how](store, first)
    store.end_unfounded(now=7.0)
    assert store.turn("p1").state is State.SKIPPED
    stored = practised(store, seen, ("p2", "b"), now=8.0, earlier=[other])
    assert not stored or store.end_unfounded(now=9.0) == 1


def test_what_was_taught_in_the_words_of_a_forgotten_session_is_forgotten(store: Store) -> None:
    first, number = taught_both(store)
    store.commit_version(a_version(1, ["p1"]), now=6.0)
    assert store.turn_ids("early") == ("a", "p1")
    assert store.turn_ids(f"lesson:{first}") == ("p1",)
    store.forget("early", now=7.0)
    assert store.lesson(number).answers == ()
    assert store._db.rows("SELECT * FROM earlier") == []


def test_what_retention_removed_can_be_unlearned_with_the_other_lesson(store: Store) -> None:
    first, _ = taught_both(store)
    store.skip(["a", "b"], Reason.STALE, now=6.0)
    store.commit_version(a_version(1, ["p1"]), now=6.0)
    store.prune(now=20.0, max_age_s=10.0, max_bytes=None)
    assert store.turn_ids("early") == store.turn_ids(f"lesson:{first}") == ("p1",)
    assert [row["words"] for row in store._db.rows("SELECT words FROM earlier")] == [""]


def test_no_lesson_gets_the_number_of_one_that_is_gone_and_was_read(store: Store) -> None:
    number, first = corrected(store, "b", session="mine"), corrected(store, "a", GREET, session="early")
    assert practised(store, store.lesson(number), ("p1", "b"), earlier=[store.lesson(first)])
    store.untaught("a")
    other = corrected(store, "c", "Use lists.", session="late")
    assert (first, store.turn_ids(f"lesson:{first}")) == (2, ("p1",))
    assert store.turn_ids(f"lesson:{other}") == ()


def test_feedback_on_a_practised_answer_is_recorded_and_changes_nothing(store: Store) -> None:
    number = corrected(store, "a")
    practised(store, store.lesson(number), ("p1", "a"))
    assert store.feedback("p1", Feedback(reward=1), now=6.0) == (State.JUDGED, False)
    store.claim("learn", owner="learner", limit=2, lease_s=60.0, now=7.0)
    store.feedback("p1", Feedback(reward=-1), now=7.5)
    store.release(["p1"], owner="learner", now=8.0)
    assert store.turn("p1").state is State.JUDGED  # the judge never gets it


def test_a_copy_holds_the_lessons(store: Store, tmp_path: Path) -> None:
    two_sessions(store)
    store.copy_to(tmp_path / "copy.db")
    copy = SqliteStore.open(tmp_path / "copy.db", fingerprint=None)
    assert copy.lessons() == store.lessons() != []
    copy.close()


def test_practice_votes_on_nothing(store: Store) -> None:
    number = corrected(store, "a")
    lesson = store.lesson(number)
    turn = replace(store.turn("a").sampled_turn, id="p1", kind=Kind.PRACTICE, parent=None)
    assert store.practised(lesson, WORDS, [Fresh(turn, "a", reward=1)], now=5.0)
    assert sum(votes.approved for votes in store.votes_on_text().values()) == 0
