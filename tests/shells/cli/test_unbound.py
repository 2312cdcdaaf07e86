"""Every turn without a place behind another one is listed with the reason, in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit.build import store_of_home
from afterwit.cli.app import app
from afterwit.lifecycle import Reason
from afterwit.turn import Conversation, Finish, Kind, Message
from tests.store.examples import NO, add

run = CliRunner()
WHY = {
    "begins": "begins a session",
    "segment": "continues its session without a parent",
    "follows": None,
    "astray": "continues turns of several sessions equally well",
    "branch": "shares its parent with another request",
    "title": "which one is not known",
    "review": "is an auxiliary request",
    "retried": "was asked again before its answer had arrived",
    "left": "was left by its client",
}


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    with store_of_home(tmp_path, make=True) as store:
        add(store, "begins", session="begins")
        add(store, "segment", session="begins")
        add(store, "follows", session="begins", parent="begins")
        add(store, "astray", session="astray", reason=Reason.AMBIGUOUS_PARENT)
        add(
            store,
            "branch",
            session="begins",
            parent="begins",
            kind=Kind.UNKNOWN,
            reason=Reason.UNKNOWN_BRANCH,
        )
        add(store, "title", session="title", kind=Kind.SIDE)
        add(store, "review", session="begins", kind=Kind.SIDE)
        add(store, "retried", session="begins", parent="follows")
        store.supersede("retried", "follows", now=1.0)
        add(
            store,
            "left",
            session="begins",
            parent="follows",
            finish=Finish.CLIENT_LEFT,
            reason=Reason.CLIENT_LEFT,
        )
    return tmp_path


def test_every_turn_that_is_not_bound_says_why(sessions: Path) -> None:
    lines = run.invoke(app, ["turns", "--json", "--kind", "all", "--home", str(sessions)]).stdout.splitlines()
    said = {turn["id"]: turn["unbound"] for turn in map(json.loads, lines)}
    assert said.keys() == WHY.keys()
    for turn, why in WHY.items():
        assert (said[turn] is None) if why is None else why in said[turn], (turn, said[turn])


def test_the_table_names_the_turns_of_each_reason(sessions: Path) -> None:
    with store_of_home(sessions) as store:
        said = (Message(role="user", content="Hi"), Message(role="assistant", content="Hello"))
        add(store, "handed", session="handed", conversation=Conversation(messages=(*said, *NO)))
    shown = run.invoke(app, ["turns", "--kind", "all", "--home", str(sessions)], env={"COLUMNS": "250"})
    lines = shown.stdout.splitlines()
    assert sum("handed: begins a session" in line for line in lines) == 1
    assert not any(line.startswith("follows:") for line in lines)


def test_an_open_turn_is_shown_as_the_last_one_with_why_it_has_no_parent(tmp_path: Path) -> None:
    with store_of_home(tmp_path, make=True) as store:
        add(store, "answered", session="answered")
        store.answer("answered", NO, answered_by=None, now=1.0)
        add(store, "waits", session="waits")
    shown = run.invoke(app, ["show", "last", "--home", str(tmp_path)], env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("waits  OPEN")
    assert "It begins a session: no recorded prompt" in shown.stdout
    assert "Nothing has followed it yet, so there is nothing to judge it by." in shown.stdout
    assert "The turn before it" not in shown.stdout


def test_a_turn_that_nobody_answered_yet_names_the_one_before(tmp_path: Path) -> None:
    with store_of_home(tmp_path, make=True) as store:
        add(store, "asked")
        add(store, "thanked", parent="asked")
        store.answer("asked", NO, answered_by="thanked", now=1.0)
    last, asked = (
        run.invoke(app, ["show", turn, "--home", str(tmp_path)], env={"COLUMNS": "160"}).stdout
        for turn in ("last", "asked")
    )
    assert "The turn before it: `afterwit show asked`." in last
    assert "Nothing has followed it" not in asked


def test_without_a_turn_of_a_conversation_the_last_one_is_the_newest_of_any_kind(tmp_path: Path) -> None:
    with store_of_home(tmp_path, make=True) as store:
        add(store, "title", kind=Kind.SIDE)
    shown = run.invoke(app, ["show", "last", "--home", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("title")
