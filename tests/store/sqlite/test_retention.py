"""The effect of pruning on the file."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing, nullcontext
from itertools import count
from pathlib import Path

import pytest

from afterwit.lifecycle import Reason
from afterwit.promotion.episodes import Episode
from afterwit.promotion.suite import SuiteItem
from afterwit.store import Store
from afterwit.store.rows import pack_ids
from afterwit.store.sqlite import SqliteDatabase, SqliteStore, connect
from afterwit.turn import Conversation, Message
from afterwit.verdict import Feedback
from tests.store.examples import add

PART = 128
"""Turns that are removed at once."""
LONG = Conversation(messages=(Message(role="user", content="x" * 20_000),))


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with other calls"])
def test_what_was_pruned_is_nowhere_in_the_files(path: Path, store: Store, together: bool) -> None:
    secret = Conversation(messages=(Message(role="user", content="the vault opens with 4711" + "x" * 9000),))
    said = (Message(role="user", content="no, it is 4712"),)
    for name in ("kept", "gone", "kept too"):
        add(store, name, conversation=secret if name == "gone" else LONG, reason=Reason.SIDE_TURN)
    store.answer("gone", said, answered_by=None, now=0.0)
    store.feedback("gone", Feedback(text="it was 4713"), now=0.0)
    add(store, "young", now=100.0)
    for needle in (b"4711", b"4712", b"4713"):
        assert needle in bytes_of(path.parent)
    with store.transaction() if together else nullcontext():
        store.prune(now=100.0, max_age_s=50.0, max_bytes=None)
    for needle in (b"4711", b"4712", b"4713"):
        assert needle not in bytes_of(path.parent)


def test_a_learner_that_was_killed_as_it_had_forgotten_leaves_nothing_to_the_next(
    path: Path, store: Store
) -> None:
    class Killed(SqliteDatabase):
        def wipe(self) -> None: ...

    add(store, "gone", session="talk", conversation=LONG)
    with closing(SqliteStore(Killed(connect(path, "NORMAL"), path))) as killed:
        killed.forget("talk", now=1.0)
    assert b"x" * 2_000 in bytes_of(path.parent)
    store.reconcile([], now=2.0)
    assert b"x" * 2_000 not in bytes_of(path.parent)


def test_the_suite_is_no_longer_kept_than_what_was_said(path: Path, store: Store) -> None:
    ids = tuple(range(70_000, 70_064))

    def approve(turn: str, *, since: float) -> None:
        item = SuiteItem(
            turn=turn,
            stratum="text",
            source="s",
            version=0,
            since=since,
            prompt_ids=ids if turn != "young" else (1, 2),
            ids=(1,),
            sure=(True,),
        )
        end = Episode(
            turn=turn,
            session=turn,
            source="s",
            version=0,
            bad=None,
            complaint=False,
            kind="text",
            approved=(),
        )
        store.end_episode(end, [item], steps=[turn], now=since)

    for turn, since in (("old", 10.0), ("approved late", 90.0), ("gone", 10.0), ("young", 90.0)):
        if turn != "gone":
            add(store, turn, now=0.0 if turn != "young" else 80.0)
        approve(turn, since=since)
    packed = pack_ids(ids)
    assert packed in bytes_of(path.parent)
    assert store.prune(now=100.0, max_age_s=50.0, max_bytes=None) == 0
    assert [item.turn for item in store.suite()] == ["young"]
    assert packed not in bytes_of(path.parent)


def test_room_that_pruning_made_is_used_again(path: Path, store: Store) -> None:
    def fill(tag: str) -> int:
        for number in range(100):
            add(store, f"{tag}{number}", reason=Reason.SIDE_TURN, conversation=LONG)
        store.claim("judge", owner="nobody", limit=1, lease_s=1, now=0.0)
        return path.stat().st_size

    fill("a")
    store.prune(now=1.0, max_age_s=0.0, max_bytes=None)
    first = fill("b")
    for tag in "cde":
        store.prune(now=1.0, max_age_s=0.0, max_bytes=None)
        last = fill(tag)
    assert last < 1.2 * first


def steps_of_pruning(path: Path, old: int, **limits: float | int | None) -> int:
    """The cost of removing a part of `old` turns, in hundreds of SQLite's instructions."""
    with closing(SqliteStore.open(path, fingerprint=None)) as filled, filled.transaction():
        for number in range(old):
            add(filled, f"t{number}", reason=Reason.SIDE_TURN)
    steps, connection = 0, connect(path, "NORMAL")

    def counted() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(counted, 100)
    with closing(SqliteStore(SqliteDatabase(connection, path))) as opened:
        assert opened.prune(now=100.0, limit=PART, **limits) == PART
    return steps


@pytest.mark.parametrize("limits", [(50.0, None), (None, 1)], ids=["too old", "too large"])
def test_pruning_part_of_many_turns_does_not_read_all_for_each_part(
    tmp_path: Path, limits: tuple[float | None, int | None]
) -> None:
    given = {"max_age_s": limits[0], "max_bytes": limits[1]}
    few, many = (steps_of_pruning(tmp_path / f"{old}.db", old, **given) for old in (PART, 8 * PART))
    assert many < 2 * few


def test_a_turn_that_another_process_adds_while_old_ones_are_pruned_stays(path: Path, store: Store) -> None:
    """Also where all turns were old when it began, as after a pause."""

    class Beside(SqliteDatabase):
        def alone(self) -> AbstractContextManager[None]:
            add(store, f"young {next(numbers)}", now=100.0, reason=Reason.SIDE_TURN)
            return super().alone()

    numbers = count()
    for number in range(40):
        add(store, f"old {number}", reason=Reason.SIDE_TURN)
    with closing(SqliteStore(Beside(connect(path, "NORMAL"), path))) as pruning:
        assert pruning.prune(now=100.0, max_age_s=50.0, max_bytes=None) == 40
    assert [record.turn.id for record in store.turns()] == [
        f"young {number}" for number in range(next(numbers))
    ]
