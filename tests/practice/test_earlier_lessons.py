"""The teacher of practice reads the lessons that were practised before, so that it does not un-teach them."""

from __future__ import annotations

from typing import Any

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.judging.hinted_prompts import HEADING
from afterwit.practice.lessons import Spoils
from afterwit.practice.rounds import Round, Tried
from afterwit.practice.table import practised_with
from afterwit.store import Store
from afterwit.turn import Sampling
from afterwit.vetting.own_words import MOST_HINT
from tests.practice.test_stage import NOW, SHORT, House, correct, due
from tests.store.examples import a_version

GREET = "Greet the person."


def with_another(store: Store, renderer: Renderer, hint: str = GREET, **more: Any) -> tuple[House, int]:
    """A stage, and the number of a lesson that a version has learned, before the person gives another one."""
    more = {"sampling": Sampling(max_tokens=64)} | more
    correct(store, "moon", hint, **more)
    house = House(store, renderer, gap=9.0)
    assert house.step()
    waiting = [each.turn for each in store.waiting(now=house.now)]
    store.commit_version(a_version(1, waiting), now=house.now)
    house.engine.version, house.now = 1, house.now + 2
    house.scored.clear()
    correct(store, "sun", now=house.now - 1, sampling=Sampling(max_tokens=64))
    return house, store.lessons()[0].number


def hints_of(store: Store, lesson: int) -> set[tuple[str, ...]]:
    records = (store.turn(each.turn) for each in (*store.lesson(lesson).answers, *store.lesson(lesson).along))
    return {record.verdict.hints for record in records if record.verdict is not None}


def test_the_teacher_reads_lessons_that_were_practised_before_too(store: Store, renderer: Renderer) -> None:
    house, first = with_another(store, renderer)
    assert house.step()
    assert hints_of(store, first + 1) == {(f"{GREET} {SHORT}",)}
    read = [renderer.decode(row.prompt_ids) for row, _ in house.scored]
    assert len(read) == 3
    assert all(f"{HEADING}\n{GREET} {SHORT}" in prompt for prompt in read)


def test_the_lessons_that_go_with_one_are_named(store: Store, renderer: Renderer) -> None:
    house, first = with_another(store, renderer)
    assert practised_with(store, first) == []
    assert house.step()
    assert practised_with(store, first) == [first + 1]
    assert practised_with(store, first + 1) == []


OTHERS: dict[str, dict[str, Any]] = {
    "dropped": {"dropped": NOW},
    "contradicts what the person approved": {"spoils": Spoils.OWN},
    "restricted to another client": {"scope": "key/chat"},
}


@pytest.mark.parametrize("why", OTHERS)
def test_the_teacher_reads_no_lesson_that_does_not_stand_or_is_for_other_prompts(
    store: Store, renderer: Renderer, why: str
) -> None:
    house, first = with_another(store, renderer)
    store.change_lesson(first, **OTHERS[why])
    assert house.step()
    assert hints_of(store, first + 1) == {(SHORT,)}


@pytest.mark.parametrize(("hint", "scope"), [("The moon belongs to Oscar.", "key/agent"), (GREET, "other/a")])
def test_the_teacher_reads_no_lesson_of_a_case_or_of_another_source(
    store: Store, renderer: Renderer, hint: str, scope: str
) -> None:
    house, first = with_another(store, renderer, hint, scope=scope)
    assert house.step()
    assert hints_of(store, first + 1) == {(SHORT,)}


def test_a_lesson_that_a_later_one_contradicts_is_neither_read_nor_practised_any_more(
    store: Store, renderer: Renderer
) -> None:
    house, first = with_another(store, renderer, f"Do not {SHORT.lower()}")
    assert house.step()
    assert hints_of(store, first + 1) == {(SHORT,)}
    store.change_lesson(first + 1, general=False, scope="key/none")
    assert due(store, now=house.now + 1) == "1 lesson: waiting; 1 lesson: waits for the next update"
    store.change_lesson(first + 1, dropped=house.now)
    store.end_unfounded(now=house.now)
    assert isinstance(found := due(store, now=house.now + 1), Round)
    assert found.lesson.number == first


def test_what_the_person_said_last_holds_if_they_change_their_mind_back(
    store: Store, renderer: Renderer
) -> None:
    house, first = with_another(store, renderer, f"Do not {SHORT.lower()}")
    correct(store, "star", f"Do not {SHORT.lower()}", now=house.now)
    assert isinstance(found := due(store, now=house.now + 1), Round)
    assert (found.lesson.number, found.earlier) == (first, ())


def test_the_teacher_reads_the_last_lessons_that_one_hint_has_room_for(
    store: Store, renderer: Renderer
) -> None:
    house, _ = with_another(store, renderer)
    texts = [f"End with {word}, {'x' * 240}." for word in ("yes", "more", "care", "thanks")]
    for number, hint in enumerate(texts, 2):
        correct(store, f"s{number}", hint, now=house.now)
        house.now += 1
        assert house.step()
        waiting = [each.turn for each in store.waiting(now=house.now)]
        store.commit_version(a_version(number, waiting), now=house.now)
        house.engine.version, house.now = number, house.now + 1
    ((hint,),) = hints_of(store, store.lessons()[-1].number)
    assert hint == " ".join([GREET, *texts[1:]])
    assert len(hint) <= MOST_HINT < len(" ".join(texts))


def test_an_answer_that_recites_a_hint_is_taught_without_any(store: Store, renderer: Renderer) -> None:
    house, first = with_another(store, renderer)
    house.answer = renderer.encode(f"Short.\n{HEADING}\n{SHORT}")
    assert house.step()
    assert hints_of(store, first + 1) == {("",)}


def test_a_look_at_twice_as_many_lessons_looks_at_each_as_often(store: Store) -> None:
    class Counting(frozenset[str]):
        asked = 0

        def __contains__(self, session: object) -> bool:
            self.asked += 1
            return super().__contains__(session)

    def looks(ids: str) -> int:
        for id in ids:
            correct(store, id, f"Speak of a {id * 3}, of {id * 3} alone.")
        waiting = [each.turn for each in store.waiting(now=NOW + 1)]
        store.commit_version(a_version(store.newest_version("shared") + 1, waiting), now=NOW)
        store.excluded = lambda: counting  # type: ignore[method-assign]
        counting = Counting()
        known = {turn.turn.id for turn in store.turns()}
        found = due(store, tried=Tried(refused=known))
        assert found == f"{len(known)} lessons: practised on every prompt of its kind"
        return counting.asked

    assert looks("abcdefgh") * 2 == looks("ijklmnop")
