"""What reached its client is told in as few calls as the store needs, and nobody waits for more than one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from afterwit.core.errors import StoreUnavailable
from afterwit.stages.gateway.deliveries import Deliveries


class Slow:
    """A store whose calls end when the test says so."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []
        self.ends: list[asyncio.Future[None]] = []

    async def call(self, work: Callable[[Any], Any]) -> None:
        work(self)
        end = asyncio.get_running_loop().create_future()
        self.ends.append(end)
        await end

    def delivered(self, turns: list[str]) -> None:
        self.told.append(list(turns))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_ends_during_a_call_is_told_by_the_next_one() -> None:
    store = Slow()
    deliveries = Deliveries(store)  # type: ignore[arg-type] # a store for its one call
    first = asyncio.ensure_future(deliveries.tell(["a"]))
    await settled()
    rest = [asyncio.ensure_future(deliveries.tell([name])) for name in "bcd"]
    await settled()
    assert store.told == [["a"]]
    store.ends[0].set_result(None)
    await first
    await settled()
    assert store.told == [["a"], ["b", "c", "d"]]
    late = asyncio.ensure_future(deliveries.tell(["e"]))
    store.ends[1].set_result(None)
    await asyncio.gather(*rest)  # none of them waits for what came later
    await settled()
    assert not late.done()
    store.ends[2].set_result(None)
    await late
    assert store.told[2:] == [["e"]]


async def test_what_the_store_refuses_is_told_with_what_comes_next() -> None:
    store = Slow()
    deliveries = Deliveries(store)  # type: ignore[arg-type] # a store for its one call
    first = asyncio.ensure_future(deliveries.tell(["a"]))
    await settled()
    store.ends[0].set_exception(StoreUnavailable("the disk is full"))
    with pytest.raises(StoreUnavailable):
        await first
    second = asyncio.ensure_future(deliveries.tell(["b"]))
    await settled()
    store.ends[1].set_result(None)
    await second
    assert store.told == [["a"], ["a", "b"]]


async def test_a_client_that_leaves_does_not_keep_others_from_being_told() -> None:
    store = Slow()
    deliveries = Deliveries(store)  # type: ignore[arg-type] # a store for its one call
    gone = asyncio.ensure_future(deliveries.tell(["a"]))
    other = asyncio.ensure_future(deliveries.tell(["b"]))
    await settled()
    gone.cancel()
    await settled()
    store.ends[0].set_result(None)
    await other
    assert store.told == [["a", "b"]]
