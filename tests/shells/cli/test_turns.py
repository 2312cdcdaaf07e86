"""`afterwit turns` and `afterwit show` over a store with turns in it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit.build import store_of_home
from afterwit.cli.app import app
from afterwit.errors import TurnNotFound
from afterwit.lifecycle import Reason
from afterwit.printing.turns import TABLE, short_ids
from afterwit.turn import Kind, Message
from afterwit.verdict import Feedback
from tests.store.examples import add, add_judged

run = CliRunner()


def test_turns_as_json_is_one_object_a_line_with_what_programs_need(home: Path) -> None:
    lines = run.invoke(app, ["turns", "--json", "--home", str(home)]).stdout.splitlines()
    turns = {turn["id"]: turn for turn in map(json.loads, lines)}
    assert turns.keys() == {"aopen", "bfailed", "cjudged", "dtrained"}
    assert (turns["bfailed"]["state"], turns["bfailed"]["reason"]) == ("SKIPPED", "penalties")
    assert turns["cjudged"]["hints"] == ["Open the file that was named."]
    assert turns["cjudged"]["next_state"]["messages"][0]["content"] == "No, the other file."


def test_turns_can_be_asked_for_by_state_whatever_its_case(home: Path) -> None:
    lines = run.invoke(app, ["turns", "--json", "--state", "judged", "--home", str(home)]).stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["cjudged"]


def test_side_turns_are_listed_on_request_only(home: Path) -> None:
    with store_of_home(home) as store:
        add(store, "measured", kind=Kind.SIDE)
    listed = {}
    for kind in ("main", "side", "all"):
        lines = run.invoke(app, ["turns", "--json", "--kind", kind, "--home", str(home)]).stdout.splitlines()
        listed[kind] = {json.loads(line)["id"] for line in lines}
    assert listed["side"] == {"measured"}
    assert listed["all"] - listed["main"] == {"measured"}
    plain = run.invoke(app, ["turns", "--home", str(home)]).stdout
    assert "measured" not in plain
    assert "only main turns are listed; --kind all lists every turn" in plain


@pytest.mark.parametrize("columns", [80, 120])
def test_a_long_reason_does_not_hide_reward_and_time(home: Path, columns: int) -> None:
    with store_of_home(home) as store:
        add_judged(store, "waits" + 21 * "x")
        claimed = store.claim("learn", owner="w", now=time.time(), lease_s=9.0, limit=9)
        ids = [record.turn.id for record in claimed]
        store.release(ids, owner="w", now=time.time(), error="the judge does not answer: " + 80 * "y")
    text = run.invoke(app, ["turns", "--home", str(home)], env={"COLUMNS": str(columns)}).stdout
    lines = text.splitlines()
    assert max(map(len, lines[:6])) <= columns
    assert lines[0].split() == ["turn", "when", "reward", "hints", "state", "response"]
    by_turn = {line.split()[0]: line for line in lines[1:6]}
    assert " -1 " in by_turn["waitsxxxxxxx"]
    assert " -1 " in by_turn["cjudged"]


def test_ids_that_begin_alike_are_listed_as_long_as_they_need() -> None:
    alike = ["0123456789abcdef", "0123456789abceff", "0123456789abxeff", "other6789abcdef"]
    assert short_ids(alike) == ["0123456789abcd", "0123456789abce", "0123456789abx", "other6789abc"]


def test_a_narrow_table_keeps_room_for_the_response(tmp_path: Path) -> None:
    with store_of_home(tmp_path, make=True) as store:
        for name in ("a", "b"):
            id, words = f"01m8gg1e179s{name}{13 * 'x'}", Message(role="assistant", content=9 * "answer ")
            add(store, id, reason=Reason.ALREADY_GOOD, kind=Kind.PRACTICE, message=words)
    command = ["turns", "--kind", "all", "--home", str(tmp_path)]
    lines = run.invoke(app, command, env={"COLUMNS": "80"}).stdout.splitlines()
    assert [line[-16:] for line in lines[1:3]] == 2 * ["answer answer a…"]


def test_show_finds_a_turn_by_the_beginning_of_its_id_and_the_last_one(home: Path) -> None:
    for named in ("cjud", "chatcmpl-cjudged"):
        text = run.invoke(app, ["show", named, "--no-advantages", "--home", str(home)]).stdout
        assert text.startswith("cjudged")
    with store_of_home(home) as store:
        add(store, "measured", kind=Kind.SIDE)
    text = run.invoke(app, ["show", "last", "--no-advantages", "--home", str(home)]).stdout
    assert text.startswith("dtrained")


def test_a_table_of_turns_counts_states_and_reasons(home: Path) -> None:
    text = run.invoke(app, ["turns", "--home", str(home)], env={"COLUMNS": "160"}).stdout
    assert "SKIPPED (penalties)" in text
    assert "TRAINED in 1" in text
    assert "OPEN 1 · ANSWERED 0 · JUDGED 1 · TRAINED 1 · SKIPPED 1" in text


def test_a_long_list_is_printed_in_parts_as_it_is_read(tmp_path: Path) -> None:
    with store_of_home(tmp_path, make=True) as store, store.transaction():
        for number in range(TABLE + 1):
            add(store, f"t{number}")
    text = run.invoke(app, ["turns", "--limit", "0", "--home", str(tmp_path)]).stdout
    lines = [line.split() for line in text.splitlines()]
    rows = [words[0] for words in lines if "OPEN" in words[1:] or words[0] == "turn"]
    assert rows == ["turn", *(f"t{number}" for number in range(TABLE)), "turn", f"t{TABLE}"]


def test_show_tells_a_turn_with_its_votes_and_hints(home: Path) -> None:
    command = ["show", "chatcmpl-cjudged", "--no-advantages", "--home", str(home)]
    text = run.invoke(app, command, env={"COLUMNS": "160"}).stdout
    for part in (
        "next state: user",
        "No, the other file.",
        "reward -1 by votes",
        "hint: Open the file",
        "invalid (no box)",
    ):
        assert part in text


def test_turns_of_a_session_are_named_by_it_by_one_of_them_or_as_the_last(home: Path) -> None:
    def listed(name: str) -> list[str]:
        command = ["turns", "--json", "--session", name, "--home", str(home)]
        lines = run.invoke(app, command, catch_exceptions=False).stdout.splitlines()
        return [json.loads(line)["id"] for line in lines]

    with store_of_home(home) as store:
        session = store.turn("cjudged").turn.session
    assert listed("cjud") == listed(session)
    assert "dtrained" in listed("last")
    with pytest.raises(TurnNotFound, match="there is no session nosuch, and no turn"):
        listed("nosuch")


def test_show_prints_each_kind_of_feedback_in_words(home: Path) -> None:
    given = Feedback(reward=-1, text="Too long.", hint="One sentence.", correction="Air scatters blue light.")
    with store_of_home(home) as store:
        store.feedback("aopen", given, now=time.time())
    text = run.invoke(app, ["show", "aopen", "--no-advantages", "--home", str(home)]).stdout
    assert "feedback: reward -1" in text
    assert "Feedback(" not in text
    for title, words in (("text", given.text), ("hint", given.hint), ("correction", given.correction)):
        assert f"feedback: {title} " in text
        assert str(words) in text
