"""A file whose bytes were changed is read correctly or reported as damaged, whichever bytes were hit."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from afterwit.errors import StoreError
from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Message
from tests.store.examples import a_version, add_judged

SECRET = "the garden gate is open"


def read_all(path: Path) -> None:
    """Every turn, from either end."""
    with closing(SqliteStore.open(path, fingerprint="model")) as store:
        list(store.turns())
        list(store.turns(newest_first=True))


@pytest.fixture
def filled(path: Path, store: Store) -> Path:
    for number in range(20):
        add_judged(store, f"turn{number}", message=Message(role="assistant", content=f"{SECRET} {number}"))
    store.commit_version(a_version(0), now=1.0)
    store.commit_version(a_version(1, ["turn1", "turn2"]), now=2.0)
    store.set_status("learn", True, "working", now=1.0)
    store.close()
    return path


def test_whatever_bytes_are_damaged_it_is_said_in_words(filled: Path) -> None:
    whole, random_ = filled.read_bytes(), random.Random(0)
    said = list[str]()
    for _ in range(70):
        damaged = bytearray(whole)
        first = random_.randrange(100, len(whole))
        for at in range(first, min(first + 2 ** random_.randrange(8), len(whole))):
            damaged[at] ^= random_.randrange(1, 256)
        filled.write_bytes(damaged)
        try:
            read_all(filled)
        except StoreError as error:
            said.append(str(error))
        for log in filled.parent.glob("store.db-*"):
            log.unlink()
    assert len(said) > 4
    assert not [words for words in said if SECRET in words]


@pytest.mark.parametrize("length", [0.3, 0.5, 0.9])
def test_a_file_that_was_cut_is_damaged_and_said_to_be(filled: Path, length: float) -> None:
    whole = filled.read_bytes()
    filled.write_bytes(whole[: int(length * len(whole))])
    with pytest.raises(StoreError, match="is damaged"):
        read_all(filled)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("UPDATE contents SET message = x'7b'", "turn turn0 is damaged in"),
        ("UPDATE turns SET state = 'NONE'", "turn turn0 is damaged in"),
        ("UPDATE contents SET ids = x'010203'", "turn turn0 is damaged in"),
        (f"UPDATE turns SET scope = CAST(x'{SECRET.encode().hex()}ff' AS TEXT)", "a text in it is not UTF-8"),
    ],
)
def test_a_row_that_makes_no_sense_is_named_and_not_quoted(filled: Path, sql: str, words: str) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute(sql)
        connection.commit()
    with pytest.raises(StoreError, match=words) as said:
        read_all(filled)
    assert SECRET not in str(said.value)
