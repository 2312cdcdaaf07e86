"""`afterwit store copy`: a home's turns from a file to a database, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit.build import store_of_home
from afterwit.checkpoints.manifest import exclusive
from afterwit.cli.app import app
from afterwit.errors import AlreadyRunning, SettingError, StoreError
from afterwit.home.backup import copy_store
from tests.store.postgresql.server import Server, server

run = CliRunner()


@pytest.fixture(scope="module")
def cluster() -> Server:
    return server()


def say(*words: str) -> str:
    return " ".join(run.invoke(app, words, catch_exceptions=False).stdout.split())


def turns(home: Path) -> list[object]:
    with store_of_home(home) as store:
        return list(store.turns())


@pytest.mark.cluster
def test_a_home_moves_into_a_database_and_back(home: Path, cluster: Server, tmp_path: Path) -> None:
    url, there = cluster.url(cluster.empty_schema()), turns(home)
    said = say("store", "copy", url, "--home", str(home))
    assert said.startswith(f"{len(there)} turns are copied; to use the copy, set store.url to it in ")
    (home / "config.toml").write_text(f'[store]\nurl = "{url}"\n')
    (home / "store.db").unlink()
    assert turns(home) == there
    assert "store.url" in say("du", "--home", str(home))
    said = say("store", "copy", "home", "--home", str(home))
    assert said.startswith(f"{len(there)} turns are copied; to use the copy, leave store.url out of ")
    (home / "config.toml").unlink()
    assert turns(home) == there


@pytest.mark.cluster
def test_a_backup_of_a_home_with_a_database_is_restored_to_a_file(
    home: Path, cluster: Server, tmp_path: Path
) -> None:
    url, there = cluster.url(cluster.empty_schema()), turns(home)
    copy_store(home, None, source=None, target=url)
    (home / "config.toml").write_text(f'[store]\nurl = "{url}"\n')
    say("backup", str(tmp_path / "copy.tar"), "--home", str(home))
    again = tmp_path / "again"
    said = say("restore", str(tmp_path / "copy.tar"), "--yes", "--home", str(again))
    assert "its turns are in its store.db, but its config.toml names a store.url" in said
    (again / "config.toml").unlink()
    assert turns(again) == there


def test_a_copy_of_a_home_that_something_runs_over_is_refused(home: Path, tmp_path: Path) -> None:
    with exclusive(home / ".gateway.lock", purpose="serve", wait=False):
        with pytest.raises(AlreadyRunning, match="newest turns would be missing"):
            copy_store(home, None, source=None, target=f"sqlite:{tmp_path / 'other.db'}")


def test_a_copy_into_a_store_that_holds_turns_is_refused(home: Path, tmp_path: Path) -> None:
    target = f"sqlite:{tmp_path / 'other.db'}"
    assert copy_store(home, None, source=None, target=target) == len(turns(home))
    with pytest.raises(StoreError, match="is not empty"):
        copy_store(home, None, source=None, target=target)


def test_what_is_not_there_or_there_already_is_not_copied(home: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="the same store"):
        copy_store(home, None, source=None, target="home")
    with pytest.raises(SettingError, match="no store to copy at"):
        copy_store(tmp_path / "nowhere", None, source=None, target="sqlite:/tmp/never")
