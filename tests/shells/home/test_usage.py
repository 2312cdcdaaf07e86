"""`du`."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from afterwit.checkpoints.versions import Versions, roll_back
from afterwit.cli.app import app
from afterwit.gateway.backlog import FILE as UNRECORDED
from tests.store.examples import a_version

run = CliRunner()


def du(home: Path) -> dict[str, dict[str, object]]:
    text = run.invoke(app, ["du", "--json", "--home", str(home)], catch_exceptions=False).stdout
    return {row["name"]: row for row in map(json.loads, text.splitlines())}


def test_every_byte_of_a_home_is_counted_once(home: Path) -> None:
    versions = Versions(root=home / "versions", base=home)
    versions.write(a_version(0), lambda folder: None)
    for number in (1, 2):
        versions.write(
            a_version(number), lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 100_000)
        )
    roll_back(versions, 1, now=9.0)
    (home / "engine.log").write_text("said")
    found = du(home)
    files = [path for path in home.rglob("*") if path.is_file() and path.name[0] != "."]
    taken = {path.stat().st_ino: path.stat().st_size for path in files if path.name[:8] != "store.db"}
    beside = [int(str(row["bytes"])) for name, row in found.items() if name != "store.db"]
    assert sum(beside) == sum(taken.values())
    assert int(str(found["store.db"]["bytes"])) >= (home / "store.db").stat().st_size
    assert int(str(found["versions/000003"]["bytes"])) < 10_000, "its weights are version 1's"


def test_it_says_what_can_go_and_how(home: Path) -> None:
    versions = Versions(root=home / "versions", base=home)
    for number in range(8):
        versions.write(a_version(number), lambda folder: (folder / "model.safetensors").write_bytes(b"x"))
    found = {name: str(row["words"]) for name, row in du(home).items()}
    assert "2 turns that ended go after 90 days" in found["store.db"]
    assert "2 wait and stay" in found["store.db"]
    assert found["versions/000001"].startswith("is served; goes with the next update")
    assert found["versions/000007"].startswith("goes after 5 newer ones (learner.keep_versions)")
    (home / "old").mkdir()
    for name in ("config.toml", "page-token"):
        (home / name).touch()
    found = du(home)
    assert [found[name]["words"] for name in ("config.toml", "page-token")] == ["needed"] * 2
    table = run.invoke(app, ["du", "--home", str(home)], env={"COLUMNS": "160"}, catch_exceptions=False)
    assert "nothing here needs it" in table.stdout
    assert "all together" in table.stdout


def test_turns_that_wait_outside_of_the_store_are_not_offered_for_deletion(home: Path) -> None:
    (home / UNRECORDED).write_text("{}\n")
    assert "delete" not in str(du(home)[UNRECORDED]["words"])


def test_a_name_is_shown_as_it_is(home: Path) -> None:
    (home / "[bold]notes\x1b[2J").touch()
    table = run.invoke(app, ["du", "--home", str(home)], env={"COLUMNS": "160"}, catch_exceptions=False)
    assert "[bold]notes[2J" in table.stdout
    assert "\x1b" not in table.stdout
