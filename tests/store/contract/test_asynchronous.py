"""The writer thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from afterwit.errors import StoreError, TurnNotFound
from afterwit.lifecycle import State
from afterwit.store import AsyncStore, Store
from tests.store.databases import Database
from tests.store.examples import add


@pytest.fixture
async def astore(database: Database) -> AsyncIterator[AsyncStore]:
    opened = AsyncStore(database.open())
    yield opened
    await opened.close()


def count(store: Store) -> int:
    return store.counts().states.get(State.OPEN, 0)


async def test_calls_run_off_the_loop_in_the_order_they_were_made(astore: AsyncStore) -> None:
    seen: list[int] = []
    threads: set[str] = set()

    def note(number: int) -> int:
        threads.add(threading.current_thread().name)
        seen.append(number)
        return number

    results = await asyncio.gather(*(astore.call(lambda _, n=n: note(n)) for n in range(200)))
    assert results == seen == list(range(200))
    assert threads == {"store"}


async def test_a_call_that_fails_tells_its_caller_and_harms_no_other(astore: AsyncStore) -> None:
    def half_then_fail(store: Store) -> None:
        add(store, "half")
        raise ValueError("no")

    works = [lambda s, n=n: add(s, f"t{n}") for n in range(20)]
    works[10] = half_then_fail
    blocked = threading.Event()
    first = asyncio.ensure_future(astore.call(lambda _: blocked.wait()))  # the rest then waits together
    rest = [asyncio.ensure_future(astore.call(work)) for work in works]
    await asyncio.sleep(0)
    blocked.set()
    outcomes = await asyncio.gather(first, *rest, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes if isinstance(outcome, Exception)] == [ValueError]
    assert await astore.call(count) == 19
    with pytest.raises(TurnNotFound):
        await astore.call(lambda s: s.turn("half"))


async def test_another_store_sees_what_was_written(astore: AsyncStore, database: Database) -> None:
    await asyncio.gather(*(astore.call(lambda s, n=n: add(s, f"t{n}")) for n in range(50)))
    other = database.open()
    assert count(other) == 50
    other.close()


async def test_a_cancelled_caller_does_not_undo_its_work(astore: AsyncStore) -> None:
    blocked = threading.Event()
    first = asyncio.ensure_future(astore.call(lambda _: blocked.wait()))
    second = asyncio.ensure_future(astore.call(lambda s: add(s, "a")))
    await asyncio.sleep(0)
    second.cancel()
    blocked.set()
    await first
    assert await astore.call(count) == 1


async def test_closing_finishes_what_was_called_and_refuses_more(database: Database) -> None:
    astore = AsyncStore(database.open())
    calls = [asyncio.ensure_future(astore.call(lambda s, n=n: add(s, f"t{n}"))) for n in range(100)]
    await asyncio.sleep(0)
    await astore.close()
    await asyncio.gather(*calls)
    with pytest.raises(StoreError, match="closed"):
        await astore.call(count)
    store = database.open()
    assert count(store) == 100
    store.close()


async def test_what_rides_along_is_done_before_the_next_call(astore: AsyncStore) -> None:
    order: list[str] = []
    riding = astore.along(lambda _: order.append("along"), within_s=1e6)
    await asyncio.sleep(0)
    await astore.call(lambda _: order.append("call"))
    await riding
    assert order == ["along", "call"]


async def test_what_rides_along_is_done_before_a_call_that_comes_as_its_time_ends(
    astore: AsyncStore,
) -> None:
    """Else a request that comes then takes an answer that its client has for one that never arrived."""
    order: list[str] = []
    for _ in range(30):
        riding = astore.along(lambda _: order.append("along"), within_s=0.0)
        await astore.call(lambda _: order.append("call"))
        await riding
    assert order == ["along", "call"] * 30


async def test_what_rides_along_goes_by_itself_if_no_call_comes(
    astore: AsyncStore, database: Database
) -> None:
    await astore.along(lambda store: add(store, "a"), within_s=0.0)
    other = database.open()
    assert count(other) == 1
    other.close()


async def test_what_rides_along_fails_alone_and_is_read_by_its_caller(astore: AsyncStore) -> None:
    def half_then_fail(store: Store) -> None:
        add(store, "half")
        raise StoreError("no")

    riding = astore.along(half_then_fail, within_s=1e6)
    await astore.call(lambda store: add(store, "a"))
    with pytest.raises(StoreError, match="no"):
        await riding
    assert await astore.call(count) == 1


async def test_closing_does_what_rides_along_and_refuses_more(database: Database) -> None:
    store = AsyncStore(database.open())
    riding = store.along(lambda opened: add(opened, "a"), within_s=1e6)
    await store.close()
    await riding
    with pytest.raises(StoreError, match="closed"):
        store.along(lambda opened: add(opened, "b"), within_s=1e6)
    other = database.open()
    assert count(other) == 1
    other.close()
