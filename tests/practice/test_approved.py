"""Approved answers in practice: no lesson that would spoil them is spread, and some go along."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Score, Scored, Weights
from afterwit.gateway.auth import hash_key
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import CLOSE, Lesson, Progress, Spoils, standing
from afterwit.practice.rounds import Hints, Test, Tested
from afterwit.practice.table import accept, edit
from afterwit.promotion.episodes import Episode
from afterwit.promotion.suite import SuiteItem
from afterwit.store import Filter, Store
from afterwit.turn import Kind
from afterwit.vetting.redaction import Redaction
from tests.practice.test_stage import NOW, SHORT, House, asks, correct, recorded
from tests.store.examples import a_version, add


def approve(store: Store, renderer: Renderer, *ids: str, scope: str = "key/agent", now: float = NOW) -> None:
    """Turns of sessions of their own that their source approved."""
    for id in ids:
        conversation = asks(f"What is {id}?")
        prompt_ids = renderer.prompt_ids(conversation)
        turn = add(
            store,
            id,
            now=NOW - 9,
            session=id,
            scope=scope,
            conversation=conversation,
            prompt_ids=prompt_ids,
        )
        item = SuiteItem.of(turn, since=now)
        sure = replace(item, sure=(True,) * len(item.ids))
        ended = Episode(
            turn=id,
            session=id,
            source=turn.source,
            version=0,
            bad=None,
            complaint=False,
            kind="text",
            approved=(id,),
        )
        store.end_episode(ended, [sure], steps=[id], now=now)


class Teacher(House):
    """The frozen base gives every approved response; not those that the lesson `spoils`, once it reads it,
    and a `learned` one only if it reads these words."""

    def __init__(
        self,
        store: Store,
        renderer: Renderer,
        *spoiled: str,
        words: str = SHORT,
        drift: float = 5.0,
        learned: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__(store, renderer, gap=drift)
        self.renderer, self.spoiled, self.words, self.learned = renderer, spoiled, words, learned

    async def scores(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        if rows[0].response_ids[: len(self.answer)] == tuple(self.answer):
            return await super().scores(rows, top=top, weights=weights)
        return [self.tested(row) for row in rows]

    def tested(self, row: Score) -> Scored:
        prompt = self.renderer.decode(row.prompt_ids)
        gone = self.words in prompt and any(f"What is {each}?" in prompt for each in self.spoiled)
        turn, words = self.learned
        gone = gone or (f"What is {turn}?" in prompt and words not in prompt)
        logprobs = (-9.0 if gone else -0.01,) * len(row.response_ids)
        return Scored(version=0, logprobs=logprobs, top_ids=(), top_logprobs=())


def a_test(lesson: Lesson, words: str, items: Sequence[SuiteItem]) -> Test:
    return Test(lesson=lesson, hints=Hints("", words), kind="", items=tuple(items), new=())


def test_a_lesson_contradicts_a_source_by_more_than_a_quarter_of_what_it_approved(store: Store) -> None:
    correct(store, "moon")
    (lesson,) = store.lessons()

    def whose(**turns: tuple[str, str, bool]) -> Spoils | None:
        items = [
            SuiteItem(
                turn=turn,
                stratum=stratum,
                source=source,
                version=0,
                since=0.0,
                prompt_ids=(1,),
                ids=(2,),
                sure=(True,),
            )
            for turn, (source, stratum, _) in turns.items()
        ]
        known = {(Hints("", SHORT), turn): Tested(True, spoiled) for turn, (_, _, spoiled) in turns.items()}
        return a_test(lesson, SHORT, items).whose(known)

    assert whose() is None
    assert whose(a=("key", "text", True)) is Spoils.OWN
    assert whose(a=("ana", "text", True)) is Spoils.OTHERS
    assert whose(a=("ana", "text", True), b=("key", "text", True)) is Spoils.OTHERS
    assert whose(a=("ana", "delete dry_run=true", True)) is None  # another kind of action
    three = dict.fromkeys("bcd", ("ana", "text", False))
    assert whose(a=("ana", "text", True), **three) is None  # a quarter
    assert whose(a=("ana", "text", True), e=("ana", "text", True), **three) is Spoils.OTHERS


def test_only_what_the_base_gives_with_and_without_the_lesson_goes_along(store: Store) -> None:
    correct(store, "moon")
    (lesson,) = store.lessons()
    known = {
        (Hints("", "short"), "a"): Tested(given=True, spoiled=False),
        (Hints("", "short"), "b"): Tested(given=False, spoiled=False),  # learned: the base would unteach it
        (Hints("", "short"), "c"): Tested(given=True, spoiled=True),
    }
    items = [
        SuiteItem(
            turn=turn, stratum="text", source="key", version=0, since=0.0, prompt_ids=(), ids=(), sure=()
        )
        for turn in "abcd"
    ]
    assert a_test(lesson, "short", items).companions(known) == ["a"]
    assert a_test(lesson, "long", items).companions(known) == []


def test_a_lesson_that_agrees_with_what_was_approved_is_spread_and_some_of_that_goes_along(
    store: Store, renderer: Renderer
) -> None:
    approve(store, renderer, "tea", "rain")
    correct(store, "moon")
    house = Teacher(store, renderer)
    assert house.step()  # the test
    assert list(store.turns(Filter(kind=Kind.PRACTICE))) == []
    assert house.step()
    (lesson,) = store.lessons()
    assert lesson.spoils is None
    assert [answer.prompt for answer in lesson.answers] == ["moon", "rain"]
    assert [answer.prompt for answer in lesson.along] == ["rain"]
    (turn,) = [
        each for each in store.turns(Filter(kind=Kind.PRACTICE)) if each.turn.id == lesson.along[0].turn
    ]
    assert turn.verdict is not None
    assert (turn.state, turn.turn.session, turn.verdict.hints) == (State.JUDGED, "moon", ("",))
    read = [SHORT in renderer.decode(row.prompt_ids) for row, _ in house.scored]
    assert sorted(read) == [False, True, True]  # its teacher reads no lesson


def test_what_the_base_gives_only_with_an_earlier_lesson_goes_along_with_that_one(
    store: Store, renderer: Renderer
) -> None:
    approve(store, renderer, "tea")
    correct(store, "sun", "Greet the person.")
    store.commit_version(a_version(1, ["sun"]), now=NOW)
    house = Teacher(store, renderer, learned=("tea", "Greet the person."))
    house.engine.version = 1
    assert (house.step(), house.step()) == (True, True)
    assert [answer.prompt for answer in store.lessons()[0].along] == []
    waiting = [each.turn for each in store.waiting(now=house.now)]
    store.commit_version(a_version(2, waiting), now=house.now)
    house.engine.version, house.now = 2, house.now + 1
    correct(store, "moon", now=house.now)
    house.now += 1
    assert (house.step(), house.step()) == (True, True)
    _, lesson = store.lessons()
    assert [answer.prompt for answer in lesson.along] == ["tea"]
    assert store.turn(lesson.along[0].turn).verdict.hints == ("Greet the person.",)


def test_what_the_policy_has_not_left_does_not_train(store: Store, renderer: Renderer) -> None:
    approve(store, renderer, "tea")
    correct(store, "moon")
    house = Teacher(store, renderer, drift=CLOSE)
    assert (house.step(), house.step()) == (True, True)
    (along,) = store.lessons()[0].along
    assert along.reason is Reason.ALREADY_GOOD


def test_a_lesson_that_spoils_what_its_source_approved_keeps_to_its_own_prompts(
    store: Store, renderer: Renderer
) -> None:
    approve(store, renderer, "tea", "rain")
    correct(store, "moon")
    house = Teacher(store, renderer, "tea")
    assert (house.step(), house.step()) == (True, True)
    (lesson,) = store.lessons()
    assert lesson.spoils is Spoils.OWN
    assert {answer.prompt for answer in lesson.answers} == {"moon"}
    assert {answer.prompt for answer in lesson.along} == {"rain"}
    store.withdraw(["tea"])  # its source has withdrawn its approval by now
    store.commit_version(a_version(1, [each.turn for each in store.waiting(now=house.now)]), now=house.now)
    house.engine.version = 1
    assert house.step()
    assert store.lessons()[0].spoils is None


def test_a_test_that_comes_out_as_before_rests_before_the_next_step(store: Store, renderer: Renderer) -> None:
    approve(store, renderer, "tea")
    correct(store, "moon")
    house = Teacher(store, renderer, "tea")
    assert house.step()
    store.change_lesson(1, spoils=None)  # as by a lesson whose test depends on this one
    assert not house.step()
    assert store.lesson(1).spoils is Spoils.OWN
    assert house.step()


def test_a_lesson_may_be_forgotten_while_it_is_tested(store: Store, renderer: Renderer) -> None:
    approve(store, renderer, "tea")
    correct(store, "moon")
    house, scores = Teacher(store, renderer, "tea"), Teacher.scores

    async def forgetting(rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        store.forget("moon", now=NOW)
        return await scores(house, rows, top=top, weights=weights)

    house.engine.score = forgetting  # type: ignore[method-assign]
    assert house.step()
    assert store.lessons() == []
    assert not house.step()


def test_a_test_on_approved_answers_is_in_the_status_while_it_runs(store: Store, renderer: Renderer) -> None:
    approve(store, renderer, "tea", "rain")
    correct(store, "moon")
    house, told = Teacher(store, renderer), list[str]()

    async def began() -> None:
        told.append(house.stage.doing)

    asyncio.run(house.stage.step(began))
    assert told == ["tests lesson 1 on 2 approved answers"]


def test_a_lesson_against_what_others_approved_waits_for_a_person(store: Store, renderer: Renderer) -> None:
    approve(store, renderer, "tea", scope="ana/agent")
    correct(store, "moon")
    house = Teacher(store, renderer, "tea")
    assert (house.step(), house.step()) == (True, False)
    (lesson,) = store.lessons()
    assert (lesson.spoils, standing(lesson).progress) == (Spoils.OTHERS, Progress.WAITING)
    assert house.stage.doing == "1 lesson: waiting"
    accept(store, lesson.number)
    assert house.step()
    assert {answer.prompt for answer in store.lessons()[0].answers} == {"moon"}


def test_edited_words_are_tested_again(store: Store, renderer: Renderer) -> None:
    approve(store, renderer, "tea", scope="ana/agent")
    correct(store, "moon")
    house = Teacher(store, renderer, "tea")
    house.step()
    edit(store, store.lessons()[0].number, "Be kind.", Redaction(), now=NOW + 1)
    assert (house.step(), house.step()) == (True, True)
    assert store.lessons()[0].spoils is None


@pytest.mark.parametrize(
    ("scopes", "practised"), [(("chat",), False), (("teach",), True), (("admin",), True)]
)
def test_the_lessons_of_a_key_that_may_not_teach_any_more_rest(
    store: Store, renderer: Renderer, scopes: tuple[str, ...], practised: bool
) -> None:
    recorded(store, "tea")
    correct(store, "moon")
    store.add_key("key", scopes, hash_key("secret"), now=NOW)
    house = House(store, renderer)
    assert house.step() is practised
    assert practised or house.stage.doing == "1 lesson: its key may not teach"
    store.revoke_key("key", now=NOW)
    house.now += 9
    for each in store.waiting(now=house.now):
        store.skip([each.turn], Reason.STALE, now=house.now)
    assert not house.step()


def test_an_approved_turn_whose_content_is_gone_or_excluded_is_not_read(
    store: Store, renderer: Renderer
) -> None:
    approve(store, renderer, "tea", "rain", scope="ana/agent")
    store.exclude("tea", now=NOW)
    correct(store, "moon")
    house = Teacher(store, renderer, "tea")
    assert (house.step(), house.step()) == (True, True)
    assert store.lessons()[0].spoils is None
    assert [answer.prompt for answer in store.lessons()[0].along] == ["rain"]
