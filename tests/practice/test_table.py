"""The lessons as people read them, and their orders about one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit.build import store_of_home
from afterwit.cli.app import app
from afterwit.errors import SettingError
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import WINDOW, Fresh, Progress
from afterwit.practice.table import accept, drop, edit, learned_from, lessons, order_unlearning, restrict
from afterwit.progress import PersonRequest, progress
from afterwit.promotion.watch import requests_asked
from afterwit.store import Store
from afterwit.turn import Conversation, Kind, Message
from afterwit.verdict import Review, ReviewRule
from afterwit.version import Effect, Origin
from afterwit.vetting.redaction import Redaction
from tests.store.examples import a_version, add_judged

SHORT = "Keep the answer short."
run = CliRunner()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_of_home(tmp_path, make=True) as opened:
        yield opened


def correct(store: Store, id: str, words: str = SHORT, *, now: float = 1.0) -> int:
    asked = Conversation(messages=(Message(role="user", content=f"Explain {id}."),))
    answered = Message(role="assistant", content=f"A long talk about {id}.")
    add_judged(store, id, now=now, session=id, conversation=asked, message=answered)
    return store.teach(store.turn(id).sampled_turn, words, now=now)


def practise(store: Store, number: int, *, gap: float | None, now: float) -> list[str]:
    """As many answers as decide, of this gap; None: they wait for the learner."""
    lesson = store.lesson(number)
    prompt = lesson.corrections[0].turn
    first = len(lesson.answers)
    turns = [
        replace(
            store.turn(prompt).sampled_turn,
            id=f"p{first + at}",
            kind=Kind.PRACTICE,
            message=Message(role="assistant", content=f"Short {first + at}."),
        )
        for at in range(WINDOW)
    ]
    assert store.practised(lesson, lesson.words, [Fresh(turn, prompt) for turn in turns], now=now)
    if gap is not None:
        effects = [Effect(turn=t.id, before=0.0, after=0.0, hinted_before=-gap / 2) for t in turns]
        version = a_version(len(store.versions()) + 1, [turn.id for turn in turns])
        store.commit_version(replace(version, effects=tuple(effects)), now=now)
    return [turn.id for turn in turns]


def test_a_row_tells_how_often_it_was_said_and_how_far_it_is_learned(store: Store) -> None:
    number = correct(store, "moon")
    correct(store, "sun", now=2.0)
    practise(store, number, gap=9.0, now=3.0)
    practise(store, number, gap=0.5, now=4.0)
    (row,) = lessons(store)
    assert (row.number, row.words, row.source, row.said) == (number, SHORT, "key", 2)
    assert (row.progress, row.first_gap, row.gap, row.version) == (Progress.LEARNED, 9.0, 0.5, 2)
    assert (row.answers, row.since, row.sessions) == (2 * WINDOW, 2 * WINDOW, ("moon", "sun"))
    assert (row.learned, row.said_since_learned) == (4.0, 0)
    assert row.how_far == "learned since version 2: it answers as a model that reads it"
    assert row.how_often == "given twice in 2 requests before it was learned; no such request since"
    assert (row.request, row.before) == ("Explain moon.", "A long talk about moon.")
    assert (row.after, row.after_version) == (f"Short {2 * WINDOW - 1}.", 0), "learned by 2, given before"


def test_requests_of_its_source_and_kinds_are_counted_before_and_after_it_was_learned(store: Store) -> None:
    number = correct(store, "moon")
    practise(store, number, gap=0.5, now=3.0)
    known = {"source": "key", "kind": "text", "complaint": False}
    asked = [
        PersonRequest(**known | {"session": "moon", "complaint": True}, at=1.0),
        PersonRequest(**known, session="sun", at=2.0),
        PersonRequest(**known, session="star", at=4.0),
        PersonRequest(**known, session="sea", at=5.0),
        PersonRequest(**known | {"kind": "edit"}, session="file", at=6.0),
        PersonRequest(**known | {"source": "other"}, session="theirs", at=6.0),
    ]
    (row,) = lessons(store, asked=asked)
    assert (row.requests, row.requests_since_learned) == (4, 2)
    assert row.how_often == "given once in 2 requests before it was learned, never in 2 requests since"


def test_an_example_is_of_a_practised_prompt(store: Store) -> None:
    number = correct(store, "moon")
    correct(store, "sun", now=2.0)
    lesson = store.lesson(number)
    fresh = replace(
        store.turn("sun").sampled_turn,
        id="p",
        kind=Kind.PRACTICE,
        message=Message(role="assistant", content="Short."),
    )
    assert store.practised(lesson, SHORT, [Fresh(fresh, "sun")], now=3.0)
    (row,) = lessons(store)
    assert (row.request, row.before, row.after) == ("Explain sun.", "A long talk about sun.", "Short.")
    assert learned_from(store, ["moon", "sun", "p", "none"]) == [(number, SHORT, 3)]


def test_what_is_said_after_it_was_learned_is_counted(store: Store) -> None:
    number = correct(store, "moon")
    correct(store, "sun", now=2.0)
    practise(store, number, gap=0.5, now=3.0)
    (row,) = lessons(store)
    assert (row.said_since_learned, row.requests_since_learned) == (0, 0)
    correct(store, "star", now=4.0)
    (row,) = lessons(store)
    assert (row.said_since_learned, row.progress, row.since) == (1, Progress.PRACTISING, 0)


def test_a_lesson_whose_corrections_were_taken_back_waits_until_one_is_given_again(store: Store) -> None:
    correct(store, "a")
    store.commit_version(a_version(0, origin=Origin.BASE, parent=None), now=1.5)
    store.commit_version(a_version(1, ["a"]), now=2.0)
    store.commit_version(a_version(2, origin=Origin.ROLLBACK, restores=0, reverts=(1,)), now=3.0)
    (row,) = lessons(store)
    assert row.progress is Progress.WAITING
    why = "its corrections do not teach any more (what it taught was taken back); give it again"
    assert row.how_far == f"waiting: {why}"
    correct(store, "b", now=4.0)
    assert [each.progress for each in lessons(store)] == [Progress.PRACTISING]


def test_a_lesson_whose_correction_waits_for_a_person_says_so_until_it_is_refused(store: Store) -> None:
    correct(store, "a")
    (row,) = lessons(store, ReviewRule(review=Review.ALL))
    assert row.how_far == "waiting: its corrections wait for your review"
    store.review(["a"], accept=False, now=2.0)
    (row,) = lessons(store)
    assert row.how_far.startswith("waiting: its corrections do not teach any more (a person refused it)")


def test_a_dropped_lesson_stays_dropped_when_it_is_said_again_and_what_waits_ends(store: Store) -> None:
    number = correct(store, "moon")
    waiting = practise(store, number, gap=None, now=2.0)
    drop(store, number, now=3.0)
    assert {store.turn(turn).reason for turn in waiting} == {Reason.LESSON_CHANGED}
    assert store.turn("moon").state is State.JUDGED  # the correction itself still teaches
    assert correct(store, "sun", now=4.0) == number
    assert [row.progress for row in lessons(store)] == [Progress.DROPPED]
    accept(store, number)
    (row,) = lessons(store)
    assert (row.progress, row.general) == (Progress.PRACTISING, True)


def test_a_lesson_names_the_later_one_that_says_otherwise_until_that_is_dropped(store: Store) -> None:
    first, later = correct(store, "moon"), correct(store, "sun", "Do not keep the answer short.", now=2.0)
    new, old = lessons(store)
    assert (new.number, new.progress, old.number) == (later, Progress.PRACTISING, first)
    assert old.how_far == f"replaced: lesson {later}, given later, says otherwise"
    drop(store, later, now=3.0)
    assert [row.progress for row in lessons(store)] == [Progress.DROPPED, Progress.PRACTISING]


def test_edited_words_replace_those_that_wait_and_bad_ones_are_refused_in_one_line(store: Store) -> None:
    number = correct(store, "moon")
    waiting = practise(store, number, gap=None, now=2.0)
    edit(store, number, "  Be\nbrief. ", Redaction(), now=3.0)
    assert {store.turn(turn).reason for turn in waiting} == {Reason.LESSON_CHANGED}
    assert lessons(store)[0].words == "Be brief."
    with pytest.raises(SettingError, match="1 to 1000"):
        edit(store, number, "  ", Redaction(), now=4.0)
    with pytest.raises(SettingError, match="secret"):
        edit(store, number, "The key is AKIA" + "IOSFODNN7EXAMINE", Redaction(), now=4.0)
    with pytest.raises(SettingError, match="mention hints"):
        edit(store, number, "Follow the hint above.", Redaction(), now=4.0)
    with pytest.raises(SettingError, match="there is no lesson 9"):
        edit(store, 9, "Be brief.", Redaction(), now=4.0)


def test_a_lesson_is_restricted_to_a_client_to_which_it_was_said(store: Store) -> None:
    number = correct(store, "moon")
    restrict(store, number, "key/agent", now=2.0)
    (row,) = lessons(store)
    assert (row.scope, row.how_wide, row.clients) == (
        "key/agent",
        "practised for key/agent alone",
        ("key/agent",),
    )
    with pytest.raises(SettingError, match="lesson 1 was not given to key/chat, but to key/agent"):
        restrict(store, number, "key/chat", now=3.0)
    restrict(store, number, None, now=4.0)
    accept(store, number)
    assert (lessons(store)[0].scope, lessons(store)[0].how_wide) == (None, "accepted for other prompts")


def test_unlearning_orders_that_what_practised_it_is_forgotten(store: Store) -> None:
    number = correct(store, "moon")
    assert order_unlearning(store, number, now=2.0) is None  # nothing practised it
    accept(store, number)
    practise(store, number, gap=5.0, now=3.0)
    assert order_unlearning(store, number, now=4.0) == f"lesson:{number}"
    assert [order.session for order in store.forget_orders()] == [f"lesson:{number}"]
    (row,) = lessons(store)
    assert (row.progress, row.how_far) == (Progress.DROPPED, "dropped: it is being unlearned")
    store.forgetting_failed(f"lesson:{number}", "version 1 is gone")
    assert lessons(store)[0].how_far == "dropped: it is not unlearned: version 1 is gone"
    accept(store, number)
    assert (lessons(store)[0].unlearning, store.forget_orders()) == (None, [])


def test_the_command_lists_drops_edits_and_accepts(tmp_path: Path) -> None:
    home = ["--home", str(tmp_path)]
    with store_of_home(tmp_path, make=True) as store:
        number = correct(store, "moon")
        correct(store, "sun", "Greet the person.", now=2.0)
    shown = run.invoke(app, ["lessons", *home], env={"COLUMNS": "120"}).stdout
    assert SHORT in shown
    assert "practising" in shown
    assert "Explain sun." in shown
    with store_of_home(tmp_path) as store:
        assert progress(requests_asked(store)).sentence in " ".join(shown.split())
        for row in lessons(store):
            assert row.how_far in shown
            assert row.how_often in shown
    assert run.invoke(app, ["lessons", "edit", str(number), "Be brief.", *home]).exit_code == 0
    dropped = run.invoke(app, ["lessons", "drop", str(number), *home]).stdout
    assert f"not practised any more; `afterwit lessons accept {number}` takes it up again" in dropped
    lines = run.invoke(app, ["lessons", "--json", *home]).stdout.splitlines()
    found = {row["number"]: row for row in map(json.loads, lines)}
    assert (found[number]["words"], found[number]["progress"]) == ("Be brief.", "dropped")
    for again in ("again, ", ""):
        accepted = run.invoke(app, ["lessons", "accept", str(number), *home]).stdout
        assert accepted == f"lesson {number} is practised {again}on other prompts of its kind too\n"
    assert run.invoke(app, ["lessons", "restrict", str(number), "key/agent", *home]).exit_code == 0
    assert "practised for key/agent alone" in run.invoke(app, ["lessons", *home]).stdout
    assert "every client" in run.invoke(app, ["lessons", "restrict", str(number), *home]).stdout
    assert isinstance(run.invoke(app, ["lessons", "drop", "9", *home]).exception, SettingError)
