"""`afterwit export` in other programs' formats, over a store with turns in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit.build import store_of_home
from afterwit.cli.app import app, main
from afterwit.turn import Conversation, Message
from afterwit.verdict import Source, Verdict
from tests.store.examples import PRAISED, add_judged

run = CliRunner()
PANNED = Verdict(reward=-1, source=Source.VOTES)


def exported(home: Path, *flags: str) -> tuple[list[dict[str, object]], str]:
    result = run.invoke(app, ["export", "--home", str(home), *flags])
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def test_an_export_says_how_many_rows_it_wrote_and_why_turns_are_not_among_them(home: Path) -> None:
    rows, said = exported(home, "--format", "trl")
    assert [row["turn"] for row in rows] == ["cjudged", "dtrained"]
    assert said.strip() == "2 rows written; 2 turns left out: not_judged 1, penalties 1"


def test_a_file_is_named_once(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    assert (
        run.invoke(app, ["export", "--home", str(home), "--format", "sft", "--out", str(one)]).exit_code == 0
    )
    assert len(one.read_text().splitlines()) == 1
    assert one.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SystemExit):
        main(["export", "--home", str(home), str(one), "--out", str(other)])
    assert "two files are named" in capsys.readouterr().err


def test_an_unknown_format_is_answered_with_those_there_are(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["export", "--home", str(home), "--format", "parquet"])
    assert "turns, trl, verl, openpipe, sft, dpo, atropos" in capsys.readouterr().err


def test_only_the_turns_that_were_asked_for_are_read(home: Path) -> None:
    assert [row["turn"] for row in exported(home, "--format", "trl", "--version", "1")[0]] == ["dtrained"]
    assert exported(home, "--format", "trl", "--session", "another")[0] == []


def test_a_group_baseline_makes_the_advantage_of_each_sample_relative_to_its_group(home: Path) -> None:
    with store_of_home(home) as store:
        add_judged(store, "e1", PRAISED, prompt_ids=(7, 8), prompt_hash=b"one")
        add_judged(store, "e2", PANNED, prompt_ids=(7, 8), prompt_hash=b"one")
    plain = {row["turn"]: row["advantage"] for row in exported(home, "--format", "trl")[0]}
    pairs = exported(home, "--format", "trl", "--set", "objective.baseline=group")[0]
    grouped = {row["turn"]: row["advantage"] for row in pairs}
    assert (plain["e1"], plain["e2"]) == (1.0, -1.0)
    assert grouped["e1"] == pytest.approx(0.5**0.5)
    assert grouped["e2"] == pytest.approx(-(0.5**0.5))


MAIL = Conversation(messages=(Message(role="user", content="Ask bob@mail.org, please."),))


def test_secrets_of_a_prompt_are_replaced_where_there_is_text_and_left_out_where_there_are_ids(
    home: Path,
) -> None:
    with store_of_home(home) as store:
        add_judged(store, "mail", PRAISED, conversation=MAIL)
    rows, _ = exported(home, "--format", "sft")
    assert "Ask [redacted: emails], please." in json.dumps(rows)
    assert "bob@mail.org" not in json.dumps(rows)
    rows, said = exported(home, "--format", "trl")
    assert "mail" not in [row["turn"] for row in rows]
    assert "holds_secret 1" in said
    rows, _ = exported(home, "--format", "trl", "--set", 'redaction.kinds=["keys"]')
    assert "mail" in [row["turn"] for row in rows]


def test_responses_with_secrets_and_excluded_sessions_are_in_no_training_data(home: Path) -> None:
    with store_of_home(home) as store:
        told = Message(role="assistant", content="It is bob@mail.org.")
        add_judged(store, "told", PRAISED, message=told, session="other")
        store.exclude("session", now=1.0)
    rows, said = exported(home, "--format", "sft")
    assert rows == []
    assert "holds_secret 1" in said
    assert "excluded 4" in said
