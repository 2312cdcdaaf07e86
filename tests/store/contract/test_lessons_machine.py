"""In whatever order people, practice and the learner act: what is taken back teaches no more.

A round of practice is read, and stored later: anything may come between. Every session's conversation holds
a mark of its own, which nothing may hold once the session is forgotten.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from afterwit.lifecycle import Reason, State
from afterwit.practice import table
from afterwit.practice.lessons import STAND, Fresh, Lesson, Wording
from afterwit.store import Record
from afterwit.turn import Conversation, Kind, Message
from afterwit.version import Origin, Version
from afterwit.vetting.redaction import Redaction
from tests.store.databases import DATABASES, KINDS, Database
from tests.store.examples import a_version, add, add_judged

HINTS = (
    "Keep the answer short.",
    "Please keep your answers short!",
    "Greet the person by name.",
    "Use lists.",
)
CLIENTS = ("key/one", "key/two", "other/one")
some = st.integers(0, 99)


@dataclass
class Round:
    """Answers that were sampled and are not stored yet."""

    lesson: Lesson
    words: str
    answers: list[Fresh]


class Lessons(RuleBasedStateMachine):
    def __init__(self, database: Callable[[Path], Database]) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = database(Path(self.folder.name) / "database").open()
        self.now, self.made = 0.0, 0
        self.rounds: list[Round] = []
        self.practised: dict[str, tuple[Lesson, str]] = {}
        """Answer -> its lesson, as it was read, and words."""
        self.earlier: dict[str, tuple[Wording, ...]] = {}
        """Answer -> the other lessons that its teacher read."""
        self.forgotten: set[str] = set()

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def tick(self, name: str = "") -> str:
        self.now, self.made = self.now + 1.0, self.made + 1
        return f"{name}{self.made:03}"

    def records(self) -> list[Record]:
        return list(self.store.turns())

    @rule(hint=st.sampled_from(HINTS), client=st.sampled_from(CLIENTS), among=some, again=st.booleans())
    def correct(self, hint: str, client: str, among: int, again: bool) -> None:
        """A turn of a new session, or of one that is there already."""
        id = self.tick("turn")
        known = [each.turn for each in self.records() if each.turn.scope == client]
        session = known[among % len(known)].session if again and known else f"session{id}"
        conversation = Conversation(messages=(Message(role="user", content=f"mark {session} {'x' * 1500}"),))
        more = {"session": session, "scope": client, "conversation": conversation}
        if session in self.store.excluded() | self.forgotten:
            return
        add_judged(self.store, id, now=self.now, **more)
        self.store.teach(self.store.turn(id).turn, hint, now=self.now)

    @rule(client=st.sampled_from(CLIENTS))
    def record(self, client: str) -> None:
        id = self.tick("turn")
        conversation = Conversation(messages=(Message(role="user", content=f"mark session{id}"),))
        more = {"session": f"session{id}", "scope": client, "conversation": conversation}
        add(self.store, id, now=self.now, **more)

    @rule(among=some, hint=st.sampled_from([None, *HINTS]))
    def judge_again(self, among: int, hint: str | None) -> None:
        self.tick()
        said = [each.turn for lesson in self.store.lessons() for each in lesson.corrections]
        if not said:
            return
        turn = said[among % len(said)]
        if hint is None:
            self.store.untaught(turn)
            return
        before = {each.turn: lesson for lesson in self.store.lessons() for each in lesson.corrections}[turn]
        number = self.store.teach(self.store.turn(turn).turn, hint, now=self.now)
        if hint in (before.words, *(each.words for each in before.corrections)):
            assert number <= before.number  # a person's order about it remains

    @rule(among=some, count=st.integers(1, 3))
    def read_a_round(self, among: int, count: int) -> None:
        self.tick()
        excluded = self.store.excluded()
        found = [
            (lesson, said)
            for lesson in self.store.lessons()
            for said in lesson.corrections
            if lesson.dropped is None
            and said.session not in excluded
            and lesson.practised_on(said.scope)
            and (said.state in (State.JUDGED, State.TRAINED) or said.reason in STAND)
        ]
        if not found:
            return
        lesson, said = found[among % len(found)]
        prompts = [id for _, id, _, _ in self.store.prompts(lesson, limit=9)]
        if not prompts:
            return
        others = {each.number: Wording(each, said) for each, said in found if each.source == lesson.source}
        others.pop(lesson.number)
        earlier, answers = tuple(others.values())[: among % 3], list[Fresh]()
        for place in range(count):
            id, prompt = self.tick("zanswer"), prompts[(among + place) % len(prompts)]
            turn = replace(self.store.turn(prompt).sampled_turn, id=id, kind=Kind.PRACTICE, parent=None)
            turn = replace(turn, scope=said.scope, session=said.session)
            answers.append(Fresh(turn, prompt, earlier=earlier))
        self.rounds.append(Round(lesson, lesson.words_of(said), answers))

    @precondition(lambda self: self.rounds)
    @rule(among=some)
    def store_a_round(self, among: int) -> None:
        self.tick()
        each = self.rounds.pop(among % len(self.rounds))
        stored = self.store.practised(each.lesson, each.words, each.answers, now=self.now)
        for answer in each.answers:
            assert bool(self.store.scopes([answer.turn.id])) is stored
            if stored:
                self.practised[answer.turn.id] = each.lesson, each.words
                self.earlier[answer.turn.id] = answer.earlier

    def claimed(self) -> list[str]:
        self.store.end_unfounded(now=self.now)
        found = [each.turn for each in self.store.waiting(now=self.now)]
        lessons, excluded = {each.number: each for each in self.store.lessons()}, self.store.excluded()
        for turn in found:
            if turn in self.practised:
                read, words = self.practised[turn]
                lesson = lessons[read.number]
                assert lesson.dropped is None
                assert words == lesson.words or not lesson.edited
                stand = [
                    said
                    for said in lesson.corrections
                    if said.state in (State.JUDGED, State.TRAINED) or said.reason in STAND
                ]
                assert any(said.session not in excluded for said in stand)
            for other in self.earlier.get(turn, ()):
                lesson = lessons[other.lesson.number]
                assert lesson.dropped is None
                assert other.words == lesson.words or not lesson.edited
                (said,) = [each for each in lesson.corrections if each.turn == other.correction.turn]
                assert said.session not in excluded
                assert said.state in (State.JUDGED, State.TRAINED) or said.reason in STAND
        return found

    @rule(hold=st.booleans())
    def learn(self, hold: bool) -> None:
        self.tick()
        turns = self.claimed()
        if turns and hold:
            self.store.skip(turns, Reason.HELD_BACK, now=self.now)
        elif turns:
            self.commit(Origin.UPDATE, turns=tuple(turns))

    def commit(self, origin: Origin, **more: object) -> Version:
        newest = max((each.number for each in self.store.versions()), default=0)
        version = replace(a_version(newest + 1), origin=origin, created=self.now, **more)
        self.store.commit_version(version, now=self.now)
        return version

    @rule()
    def roll_back(self) -> None:
        self.tick()
        gone = {number for each in self.store.versions() for number in each.reverts}
        updates = {each.number for each in self.store.versions() if each.origin is Origin.UPDATE} - gone
        if updates:
            self.commit(Origin.ROLLBACK, restores=0, reverts=tuple(sorted(updates)))

    @rule(among=some, order=st.sampled_from(["drop", "edit", "accept", "restrict", "free", "undo"]))
    def order(self, among: int, order: str) -> None:
        self.tick()
        if not (lessons := self.store.lessons()):
            return
        lesson = lessons[among % len(lessons)]
        if order == "drop":
            table.drop(self.store, lesson.number, now=self.now)
        elif order == "edit":
            table.edit(self.store, lesson.number, f"Answer in {among} words.", Redaction(), now=self.now)
        elif order == "accept":
            table.accept(self.store, lesson.number)
        elif order == "undo":
            if (name := table.order_unlearning(self.store, lesson.number, now=self.now)) is not None:
                own = {id for id, (read, _) in self.practised.items() if read.number == lesson.number}
                own |= {
                    id
                    for id, others in self.earlier.items()
                    if any(other.lesson.number == lesson.number for other in others)
                }
                assert own & self.in_weights() <= set(self.store.turn_ids(name))
                self.store.forget(name, now=self.now)
        else:
            scope = lesson.corrections[among % len(lesson.corrections)].scope if order == "restrict" else None
            table.restrict(self.store, lesson.number, scope, now=self.now)

    def in_weights(self) -> set[str]:
        """Turns that a version learned from and whose end is not that they were forgotten."""
        sql = "SELECT id FROM turns JOIN trained ON turn = id WHERE coalesce(reason, '') <> 'forgotten'"
        return {row["id"] for row in self.store._db.rows(sql)}

    @rule(among=some, order=st.sampled_from(["forget", "exclude", "include"]))
    def end_a_session(self, among: int, order: str) -> None:
        self.tick()
        if not (records := self.records()):
            return
        session = records[among % len(records)].turn.session
        if order == "forget":
            self.store.forget(session, now=self.now)
            self.forgotten.add(session)
        elif order == "exclude":
            self.store.exclude(session, now=self.now)
        else:
            self.store.include(session)

    @rule(among=some)
    def requeue(self, among: int) -> None:
        self.tick()
        ended = [each.turn.id for each in self.records() if each.state is State.SKIPPED]
        self.store.requeue(now=self.now)
        if ended:
            self.store.requeue([ended[among % len(ended)]], now=self.now)

    @rule(age=st.integers(5, 40))
    def prune(self, age: int) -> None:
        self.tick()
        self.store.prune(now=self.now, max_age_s=float(age), max_bytes=None)

    @invariant()
    def what_is_forgotten_is_nowhere(self) -> None:
        for each in self.records():
            told = "".join(message.content or "" for message in each.turn.conversation.messages)
            assert not any(f"mark {session} " in f"{told} " for session in self.forgotten)
            assert each.turn.session not in self.forgotten
            given = {other.correction.session for other in self.earlier.get(each.turn.id, ())}
            assert not given & self.forgotten

    @invariant()
    def an_answer_practised_its_own_lesson(self) -> None:
        for lesson in self.store.lessons():
            for answer in lesson.answers:
                read, _ = self.practised[answer.turn]
                assert (read.number, read.source) == (lesson.number, lesson.source)


QUICK = settings(
    max_examples=3,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
LIVES = {"sqlite": 1000, "postgresql": 100}
"""In the slow form."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_taken_back_teaches_no_more(kind: str) -> None:
    run_state_machine_as_test(lambda: Lessons(DATABASES[kind]), settings=QUICK)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_taken_back_teaches_no_more_in_many_lives(kind: str) -> None:
    many = settings(QUICK, max_examples=LIVES[kind])
    run_state_machine_as_test(lambda: Lessons(DATABASES[kind]), settings=many)
