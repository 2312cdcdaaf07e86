"""The commands over a store with turns in it: what they print, and what they say when they cannot."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit.apps.build import store_of_home
from afterwit.apps.cli import app, main
from afterwit.apps.tables import short_ids
from afterwit.core.errors import SettingError, StoreMismatch
from afterwit.core.lifecycle import Reason
from afterwit.core.turn import Kind
from afterwit.store.sqlite import SqliteStore
from tests.store.examples import PRAISED, a_version, add, add_judged

run = CliRunner()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Four turns: open, skipped, judged and trained in version 1."""
    store = SqliteStore.open(tmp_path / "store.db", fingerprint="f")
    add(store, "aopen", now=time.time())
    add(store, "bfailed", reason=Reason.PENALTIES)
    add_judged(store, "cjudged")
    add_judged(store, "dtrained", PRAISED)
    store.commit_version(a_version(0), now=1.0)
    store.commit_version(a_version(1, ["dtrained"]), now=2.0)
    store.published(1, now=3.0)
    store.close()
    return tmp_path


def test_turns_as_json_is_one_object_a_line_with_what_programs_need(home: Path) -> None:
    lines = run.invoke(app, ["turns", "--json", "--home", str(home)]).stdout.splitlines()
    turns = {turn["id"]: turn for turn in map(json.loads, lines)}
    assert turns.keys() == {"aopen", "bfailed", "cjudged", "dtrained"}
    needed = {
        "id",
        "session",
        "parent",
        "kind",
        "state",
        "reason",
        "versions",
        "next_state",
        "reward",
        "hints",
    }
    assert all(needed <= turn.keys() for turn in turns.values())
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
def test_a_long_reason_pushes_neither_reward_nor_time_out(home: Path, columns: int) -> None:
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


def test_ids_that_begin_alike_are_listed_whole() -> None:
    alike = ["0123456789abcd", "0123456789abce", "other6789abcdef"]
    assert short_ids(alike) == ["0123456789abcd", "0123456789abce", "other6789abc"]


def test_show_finds_a_turn_by_the_beginning_of_its_id_and_the_last_one(home: Path) -> None:
    for named in ("cjud", "chatcmpl-cjudged"):
        text = run.invoke(app, ["show", named, "--no-advantages", "--home", str(home)]).stdout
        assert text.startswith("cjudged")
    with store_of_home(home) as store:
        add(store, "measured", kind=Kind.SIDE)
    text = run.invoke(app, ["show", "last", "--no-advantages", "--home", str(home)]).stdout
    assert text.startswith("dtrained")


def test_a_misspelt_option_is_answered_with_the_one_that_was_meant() -> None:
    for command in ("serve", "train", "doctor"):
        assert "--model" in run.invoke(app, [command, "--modle", "x"], env={"COLUMNS": "160"}).stderr


def test_a_table_of_turns_counts_states_and_reasons(home: Path) -> None:
    text = run.invoke(app, ["turns", "--home", str(home)], env={"COLUMNS": "160"}).stdout
    assert "SKIPPED (penalties)" in text
    assert "TRAINED in 1" in text
    assert "OPEN 1 · ANSWERED 0 · JUDGED 1 · TRAINED 1 · SKIPPED 1" in text


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


def test_versions_mark_the_one_that_is_served(home: Path) -> None:
    text = run.invoke(app, ["versions", "--home", str(home)], env={"COLUMNS": "160"}).stdout
    assert "1 *" in text
    rows = run.invoke(app, ["versions", "--json", "--home", str(home)]).stdout.splitlines()
    assert [json.loads(row)["trained"] for row in rows] == [0, 1]


def test_export_writes_every_turn_whole(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "turns.jsonl"
    out.touch(mode=0o644)
    result = run.invoke(app, ["export", str(out), "--home", str(home)])
    turns = [json.loads(line) for line in out.read_text().splitlines()]
    assert out.stat().st_mode & 0o777 == 0o600
    assert "4 turns written" in result.stderr
    assert all(len(turn["ids"]) == len(turn["logprobs"]) == len(turn["token_versions"]) for turn in turns)


def test_a_key_is_printed_once_and_kept_as_its_hash(home: Path) -> None:
    key = run.invoke(app, ["keys", "add", "laptop", "--scope", "chat", "--home", str(home)]).stdout.strip()
    assert key.startswith("aw-")
    listed = run.invoke(app, ["keys", "list", "--home", str(home)]).stdout
    assert "laptop" in listed
    assert key not in listed
    assert all(key.encode() not in path.read_bytes() for path in home.glob("store.db*"))
    assert run.invoke(app, ["keys", "revoke", "laptop", "--home", str(home)]).exit_code == 0


def test_a_key_can_be_made_before_the_first_start_and_the_store_then_takes_a_model(tmp_path: Path) -> None:
    home = tmp_path / "new"
    key = run.invoke(app, ["keys", "add", "laptop", "--home", str(home)]).stdout.strip()
    assert key.startswith("aw-")
    for fingerprint in ("a model", None):
        store = SqliteStore.open(home / "store.db", fingerprint=fingerprint)
        (kept,) = store.keys()
        assert kept.name == "laptop"
        store.close()
    with pytest.raises(StoreMismatch):
        SqliteStore.open(home / "store.db", fingerprint="another model")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["turns", "--state", "lost"], "--state lost: it must be one of OPEN, ANSWERED"),
        (["keys", "add", "x", "--scope", "all"], "--scope all: it must be one of chat, teach"),
        (["rollback", "1"], "no model"),
        (["serve"], "no model"),
        (["serve", "a/b", "--model", "c/d"], "two models are named, a/b and --model c/d"),
        (["serve", "http://127.0.0.1:8000/v1"], "is the address of a server. Afterwit takes the place"),
        (["serve", "llama3:8b"], "looks like an Ollama name"),
        (["serve", "models/llama.Q4.gguf"], "holds quantised GGUF weights"),
        (["serve", "/nowhere/model"], "there is no model at /nowhere/model"),
        (["serve", "/nowhere/model", "--set", "judge.vote=1"], "did you mean judge.votes"),
        (["serve", "--stages", "gateway,juge"], "--stages juge: the stages are gateway, judge, learn"),
        (["show", "nobody"], "there is no turn nobody"),
        (["train", "--config", "/nowhere.toml"], "there is no configuration file /nowhere.toml"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    home: Path, command: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--home", str(home)])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in error
    assert len(error.splitlines()) == 1


def test_a_home_without_a_store_is_told_how_to_get_one(tmp_path: Path) -> None:
    result = run.invoke(app, ["turns", "--home", str(tmp_path)])
    assert isinstance(result.exception, SettingError)
    assert "start `afterwit serve` first" in str(result.exception)


def test_help_needs_no_torch() -> None:
    code = "import sys; from afterwit.apps.cli import app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("torch", "serve", "local"),
        ("torch", "serve --stages learn", "local"),
        ("torch", "train", "local"),
        ("torch", "doctor", "local"),
        ("huggingface_hub", "serve some/model", "local"),
        ("openai", "demo", "demo"),
    ],
)
def test_without_an_extra_a_command_names_it(
    missing: str, command: str, extra: str, model: Path, tmp_path: Path
) -> None:
    words = command.split()
    place = ["--out", str(tmp_path)] if command == "demo" else ["--home", str(tmp_path), "--port", "0"]
    place = place if words[0] == "serve" else place[:2]
    place += [] if command in ("demo", "serve some/model") else [str(model)]
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom afterwit.apps.cli import main\n"
    code += f"main({[*words, *place]})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith(f"pip install '.[{extra}]' in a clone")
