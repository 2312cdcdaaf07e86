"""The commands' effects on a home, and their error messages."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from afterwit import build
from afterwit.build import store_of_home
from afterwit.cli.app import EXTRAS, app, main
from afterwit.cli.options import LISTED, listed
from afterwit.config import load
from afterwit.demo.worlds import world_named
from afterwit.errors import SettingError, StoreMismatch
from afterwit.exporting.formats import FORMATS
from afterwit.gateway.auth import hash_key
from afterwit.home.home import remember_model
from afterwit.store.sqlite import SqliteStore

run = CliRunner()
command_of = cache(get_command)


def test_a_misspelt_option_is_answered_with_the_one_that_was_meant() -> None:
    for command in ("serve", "train", "doctor"):
        assert "--model" in run.invoke(app, [command, "--modle", "x"], env={"COLUMNS": "160"}).stderr


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
    made = run.invoke(app, ["keys", "add", "laptop", "--scope", "chat", "--home", str(home)])
    key = made.stdout.strip()
    assert key.startswith("aw-")
    assert "every caller needs a key" in made.stderr
    assert not run.invoke(app, ["keys", "add", "second", "--home", str(home)]).stderr
    listed = run.invoke(app, ["keys", "list", "--home", str(home)]).stdout
    assert "laptop" in listed
    assert key not in listed
    assert all(key.encode() not in path.read_bytes() for path in home.glob("store.db*"))
    assert run.invoke(app, ["keys", "revoke", "laptop", "--home", str(home)]).exit_code == 0


def test_a_rotated_key_keeps_its_name_and_scopes_and_the_old_one_is_gone(home: Path) -> None:
    old = run.invoke(app, ["keys", "add", "laptop", "--scope", "chat", "--home", str(home)]).stdout.strip()
    new = run.invoke(app, ["keys", "rotate", "laptop", "--home", str(home)]).stdout.strip()
    assert new.startswith("aw-")
    assert new != old
    with store_of_home(home) as store:
        (key,) = store.keys()
    assert (key.name, key.scopes, key.hash) == ("laptop", frozenset({"chat"}), hash_key(new))
    assert run.invoke(app, ["keys", "rotate", "phone", "--home", str(home)]).exit_code != 0


def test_a_revoked_key_is_not_brought_back_by_rotating_it(home: Path) -> None:
    for order in ("add", "revoke"):
        run.invoke(app, ["keys", order, "laptop", "--home", str(home)])
    refused = run.invoke(app, ["keys", "rotate", "laptop", "--home", str(home)])
    assert "`afterwit keys add laptop` makes a new one" in str(refused.exception)
    with store_of_home(home) as store:
        (key,) = store.keys()
    assert key.revoked is not None


def test_revoking_the_only_key_says_who_may_call_now(home: Path) -> None:
    for name in ("laptop", "phone"):
        run.invoke(app, ["keys", "add", name, "--home", str(home)])
    one_left = run.invoke(app, ["keys", "revoke", "laptop", "--home", str(home)]).stdout
    assert one_left == "the key 'laptop' is refused from now on\n"
    said = run.invoke(app, ["keys", "revoke", "phone", "--home", str(home)]).stdout
    assert "this machine may now call without one" in said


def test_a_key_can_be_made_before_the_first_start_and_the_store_then_takes_a_model(tmp_path: Path) -> None:
    home = tmp_path / "new"
    key = run.invoke(app, ["keys", "add", "laptop", "--home", str(home)]).stdout.strip()
    assert key.startswith("aw-")
    store = SqliteStore.open(home / "store.db", fingerprint="a model")
    (kept,) = store.keys()
    assert kept.name == "laptop"
    store.bind("a model")
    store.close()
    with pytest.raises(StoreMismatch):
        SqliteStore.open(home / "store.db", fingerprint="another model")


def test_a_store_of_another_model_names_the_model_that_it_was_made_with(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with closing(SqliteStore.open(home / "store.db", fingerprint=None)) as store:
        store.bind("another model")
    remember_model(home, tmp_path / "first")
    with pytest.raises(StoreMismatch, match=r"It was made with .*first"):
        build.store_of_model(load(home=home), home, world_named("tools").folder / "model")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["turns", "--state", "lost"], "--state lost: it must be one of OPEN, ANSWERED"),
        (["keys", "add", "x", "--scope", "all"], "--scope all: it must be one of chat, teach"),
        (["rollback", "1"], "no model"),
        (["serve"], "no model"),
        (["serve", "a/b", "--model", "c/d"], "two models are named, a/b and --model c/d"),
        (["serve", "http://127.0.0.1:8000/v1"], "is the address of a server, not a model: name the model"),
        (["serve", "llama3:8b"], "looks like an Ollama name"),
        (["serve", __file__], "test_commands.py is a file, and not a GGUF one; name a Hugging Face model's"),
        (["serve", "models/llama.Q4.gguf"], "there is no model at models/llama.Q4.gguf"),
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


@pytest.mark.parametrize(
    "command",
    [
        ["rollback", "0"],
        ["merge", "out"],
        ["forget", "--adapter", "key:a"],
        ["lessons", "drop", "1", "--undo"],
    ],
    ids=" ".join,
)
def test_a_home_that_is_not_there_has_no_store_for_any_command(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--home", str(tmp_path / "none")])
    assert f"there is no store at {tmp_path / 'none' / 'store.db'}" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_home_without_a_store_is_told_how_to_get_one(tmp_path: Path) -> None:
    result = run.invoke(app, ["turns", "--home", str(tmp_path)])
    assert isinstance(result.exception, SettingError)
    assert "start `afterwit serve` first" in str(result.exception)


def test_help_imports_nothing_but_the_commands() -> None:
    code = """
import sys
from afterwit.cli.app import app
for command in ([], ["serve"], ["turns"], ["keys", "add"]):
    app([*command, "--help"], standalone_mode=False)
print(*sorted(name for name in sys.modules if sys.modules[name] is not None))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stdout.splitlines()[-1].split()
    ours = {".".join(name.split(".")[:2]) for name in imported if name.startswith("afterwit.")}
    assert ours == {
        "afterwit.cli",
        "afterwit.errors",
        "afterwit.plugins",
        "afterwit.recipes",
    }
    heavy = {
        "torch",
        "transformers",
        "numpy",
        "tokenizers",
        "jinja2",
        "aiohttp",
        "starlette",
        "uvicorn",
        "sqlite3",
    }
    assert heavy.isdisjoint(imported)


def refusals(commands: list[list[str]], *, missing: set[str]) -> list[tuple[int, str]]:
    """Exit status and last words of each command, in one process that lacks some modules."""
    code = f"""
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys({sorted(missing)!r}))
from afterwit.cli.app import main
ended = []
for command in {commands!r}:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main(command)
        except SystemExit as end:
            ended.append((end.code, said.getvalue().splitlines()[-1]))
print(json.dumps(ended))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [(status, words) for status, words in json.loads(done.stdout.splitlines()[-1])]


def test_without_the_extra_local_every_command_that_needs_it_names_it(model: Path, tmp_path: Path) -> None:
    commands = ["serve M --port 0", "serve M --stages learn", "train M", "doctor M", "serve some/model"]
    typed = [[*command.replace("M", str(model)).split(), "--home", str(tmp_path)] for command in commands]
    ended = refusals(typed, missing=EXTRAS["local"])
    assert [status for status, _ in ended] == [2] * len(commands)
    remedy = f"{sys.executable} -m pip install '.[local]'"
    assert [words for _, words in ended if not words.endswith(remedy)] == []


@pytest.mark.slow
def test_without_the_extra_demo_the_demo_names_it(tmp_path: Path) -> None:
    ((status, words),) = refusals([["demo", "--out", str(tmp_path)]], missing=EXTRAS["demo"])
    assert status == 2
    assert words.endswith(f"{sys.executable} -m pip install '.[demo]'")


def test_without_any_extra_the_home_can_be_read_and_written_and_training_data_too(home: Path) -> None:
    missing = sorted(name for names in EXTRAS.values() for name in names)
    commands = [
        "turns",
        "show last --no-advantages",
        "versions",
        "keys list",
        "keys add k",
        "requeue",
        "export",
        *(f"export --format {name}" for name in FORMATS),
    ]
    code = f"""
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from afterwit.cli.app import app
for command in {commands!r}:
    app([*command.split(), "--home", {str(home)!r}], standalone_mode=False)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_package_whose_command_cannot_be_used_costs_that_command_alone(tmp_path: Path) -> None:
    faulty = {
        "count": ("1 / 0", "ZeroDivisionError: division by zero"),
        "ended": ("raise SystemExit(3)", "SystemExit: 3"),
        "print": ("app = print", "TypeError: careless_print:app is no Typer"),
        "turns": ("import typer; app = typer.Typer()", "ValueError: Afterwit has a command of this name"),
    }
    about = tmp_path / "careless-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: careless\nVersion: 1\n")
    parts = "".join(f"{name} = careless_{name}:app\n" for name in faulty)
    (about / "entry_points.txt").write_text(f"[afterwit.commands]\n{parts}")
    for name, (code, _) in faulty.items():
        (tmp_path / f"careless_{name}.py").write_text(f"{code}\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "afterwit", "turns", "--help"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert "List turns with state and reason" in done.stdout
    why = "(afterwit.commands) but fails to load: update or uninstall it"
    assert done.stderr.splitlines() == [
        f"afterwit: careless provides {name} {why}: {error}" for name, (_, error) in faulty.items()
    ]


@cache
def help_of(*words: str) -> str:
    return run.invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).stdout


def every_command() -> list[list[str]]:
    """The words of each command of ours, without those of other packages."""
    root = command_of(app)
    assert isinstance(root, TyperGroup)
    commands = [["lessons"]]  # a group that is a command, too
    for name, command in root.commands.items():
        if isinstance(command, TyperGroup):
            commands += [[name, each] for each in command.commands if name != "atropos"]
        else:
            commands.append([name])
    return commands


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_has_an_example_that_parses_and_fits_a_terminal(words: list[str]) -> None:
    lines = help_of(*words).splitlines()
    examples = [line for line in lines if line.startswith("    afterwit ")]
    assert max(map(len, lines)) <= 80
    assert examples
    command = command_of(app)
    for word in words:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    for example in examples:
        called = shlex.split(example, comments=True)[1:]
        assert called[: len(words)] == words
        command.make_context(words[-1], called[len(words) :])  # refuses unknown options


def test_help_lists_commands_whole_and_flags_without_a_value() -> None:
    listed = help_of()
    assert "..." not in listed.partition("\n\n")[2]
    assert not re.search(r"<\w", "".join(help_of(*words) for words in every_command()))


def test_completion_names_the_commands() -> None:
    asked = {"_AFTERWIT_COMPLETE": "complete_bash", "COMP_WORDS": "afterwit pro", "COMP_CWORD": "1"}
    assert run.invoke(app, [], env=asked, prog_name="afterwit").stdout.split() == ["progress"]


def test_a_program_gets_a_whole_list_and_a_person_the_newest_of_it() -> None:
    assert (listed(None, json=True), listed(None, json=False)) == (0, LISTED)
    assert listed(3, json=True) == listed(3, json=False) == 3
