"""Processes on a disk without room."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from afterwit.store.sqlite import SqliteStore
from tests.store.examples import a_turn
from tests.store.worker import fill_the_disk, noted, open_on_a_full_disk, run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "versions"
    made.mkdir()
    return made


def sound(path: Path) -> bool:
    connection = sqlite3.connect(path)
    found = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return found == [("ok",)]


def test_a_full_disk_is_said_in_plain_words_and_writing_goes_on_when_there_is_room(
    path: Path, folder: Path
) -> None:
    assert run(fill_the_disk, path, folder) == 0
    (error,) = noted(folder / "error")
    assert "could not be written" in error
    assert "Free some disk space" in error
    assert len(noted(folder / "acknowledged")) > 3
    with closing(SqliteStore.open(path, fingerprint="model")) as store:
        for name in noted(folder / "acknowledged"):
            assert store.turn(name).turn == a_turn(name)
    assert sound(path)


def test_a_store_that_cannot_be_created_for_lack_of_room_leaves_nothing(path: Path, folder: Path) -> None:
    assert run(open_on_a_full_disk, path, folder) == 0
    (error,) = noted(folder / "error")
    assert "could not be written" in error
    assert list(path.parent.iterdir()) == []
