"""Who is told what, and when again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from afterwit.errors import TrackerFailed
from afterwit.retry import BackOff
from afterwit.store import AsyncStore
from afterwit.store.sqlite import SqliteStore
from afterwit.tracking.stage import LEASE_S, Tracking
from afterwit.worker import Signals
from tests.tracking.told import Remembering, commit


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncStore]:
    opened = AsyncStore(SqliteStore.open(tmp_path / "store.db", fingerprint=None))
    yield opened
    await opened.close()


async def silent(ok: bool, message: str) -> None:
    pass


def tracking(store: AsyncStore, owner: str = "here", now: float = 1e6, **trackers: Remembering) -> Tracking:
    opens = {name: (lambda run, tracker=tracker: tracker) for name, tracker in trackers.items()}
    return Tracking(store, opens, owner=owner, now=lambda: now, report=silent)


async def test_each_version_is_told_once_and_the_base_not_at_all(store: AsyncStore) -> None:
    board = Remembering()
    stage = tracking(store, board=board)
    assert not await stage.step()
    await store.call(lambda store: commit(store, 0, 1, 2))
    assert await stage.step()
    assert not await stage.step()
    await store.call(lambda store: commit(store, 3))
    assert await tracking(store, board=board).step()
    assert board.told == [1, 2, 3]


async def test_a_tracker_that_fails_holds_up_no_other_and_is_told_later(store: AsyncStore) -> None:
    await store.call(lambda store: commit(store, 0, 1, 2))
    broken, fine = Remembering(fails=1), Remembering()
    stage = tracking(store, broken=broken, fine=fine)
    with pytest.raises(TrackerFailed, match=r"tracker broken was not told.*ConnectionError: nobody listens"):
        await stage.step()
    assert (broken.told, broken.closed, fine.told) == ([], 1, [1, 2])
    await stage.step()
    assert (broken.told, fine.told) == ([1, 2], [1, 2])


async def test_a_tracker_that_is_added_later_is_told_the_whole_history(store: AsyncStore) -> None:
    await store.call(lambda store: commit(store, 0, 1, 2))
    first, second = Remembering(), Remembering()
    await tracking(store, first=first).step()
    await tracking(store, first=first, second=second).step()
    assert (first.told, second.told) == ([1, 2], [1, 2])


async def test_numbers_that_lost_versions_had_are_told_again(store: AsyncStore) -> None:
    board = Remembering()
    await store.call(lambda store: commit(store, 0, 1))
    await store.call(lambda store: store.set_note("tracking.board", "7"))
    await tracking(store, board=board).step()
    await store.call(lambda store: commit(store, 2))
    await tracking(store, board=board).step()
    assert board.told == [2]


async def test_of_two_processes_over_one_store_one_tells_until_it_is_gone(store: AsyncStore) -> None:
    await store.call(lambda store: commit(store, 0, 1))
    one, other = Remembering(), Remembering()
    assert await tracking(store, "one", 1e6, board=one).step()
    await store.call(lambda store: commit(store, 2))
    assert not await tracking(store, "other", 1e6 + LEASE_S - 1, board=other).step()
    assert await tracking(store, "one", 1e6 + LEASE_S - 1, board=one).step()
    await store.call(lambda store: commit(store, 3))
    assert not await tracking(store, "other", 1e6 + 2 * LEASE_S - 2, board=other).step()
    assert await tracking(store, "other", 1e6 + 2 * LEASE_S, board=other).step()
    assert (one.told, other.told) == ([1, 2], [3])


async def test_the_run_has_one_id_for_ever(store: AsyncStore) -> None:
    await store.call(lambda store: commit(store, 0, 1))
    ids = []
    for _ in range(2):
        board = Remembering()

        def opened(run: str, board: Remembering = board) -> Remembering:
            ids.append(run)
            return board

        await store.call(lambda store: store.set_note("tracking.board", "0"))
        stage = Tracking(store, {"board": opened}, owner="me", now=lambda: 1e6, report=silent)
        await stage.step()
    assert len(ids) == 2
    assert len(set(ids)) == 1


async def test_the_loop_reports_its_health_and_closes_the_trackers(store: AsyncStore) -> None:
    await store.call(lambda store: commit(store, 0, 1))
    board, signals, said = Remembering(fails=1), Signals(), list[tuple[bool, str]]()

    async def report(ok: bool, message: str) -> None:
        said.append((ok, message))
        if ok:
            signals.stop.set()

    stage = Tracking(store, {"board": lambda run: board}, owner="me", now=lambda: 1e6, report=report)
    back_off = BackOff(base_s=0.0, max_s=0.0, random=lambda: 0.0)
    await stage.run(signals, poll_s=0.0, back_off=back_off)
    assert [ok for ok, _ in said] == [False, True]
    assert (board.told, board.closed) == ([1], 2)
