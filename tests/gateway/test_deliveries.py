"""Deliveries are stored together with other calls of the store; no request waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from afterwit.errors import StoreError, StoreUnavailable
from afterwit.gateway.context import Deliveries


class Slow:
    """A store whose next call comes at the test's command."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []
        self.riding: list[tuple[Callable[[Any], int], asyncio.Future[int]]] = []
        self.closed = False

    def along(self, work: Callable[[Any], int], *, within_s: float) -> asyncio.Future[int]:
        if self.closed:
            raise StoreUnavailable("the store is closed")
        future = asyncio.get_running_loop().create_future()
        self.riding.append((work, future))
        return future

    def delivered(self, turns: list[str]) -> None:
        self.told.append(list(turns))

    async def call(self, error: StoreError | None = None) -> None:
        for work, future in self.riding:
            sent = work(self)
            future.set_result(sent) if error is None else future.set_exception(error)
        self.riding = []
        await asyncio.sleep(0)


def deliveries_of(store: Slow) -> tuple[Callable[..., None], list[StoreError]]:
    failures = list[StoreError]()
    deliveries = Deliveries(store, failures.append)  # type: ignore[arg-type] # its two calls
    return lambda *turns: deliveries.add(turns), failures


async def test_what_ends_before_the_next_call_is_told_with_it_at_once() -> None:
    store = Slow()
    tell, failures = deliveries_of(store)
    tell("a")
    tell("b", "c")
    assert store.told == []
    await store.call()
    await store.call()
    tell("d")
    await store.call()
    assert (store.told, failures) == ([["a", "b", "c"], ["d"]], [])


async def test_what_ends_while_others_are_told_is_told_next() -> None:
    store = Slow()
    tell, _ = deliveries_of(store)
    tell("a")
    ((work, future),) = store.riding
    sent = work(store)
    tell("b")
    store.riding = []
    future.set_result(sent)
    await asyncio.sleep(0)
    await store.call()
    assert store.told == [["a"], ["b"]]


async def test_what_the_store_refuses_is_told_with_what_comes_next() -> None:
    store, full = Slow(), StoreUnavailable("the disk is full")
    tell, failures = deliveries_of(store)
    tell("a")
    await store.call(full)
    assert failures == [full]
    tell("b")
    await store.call()
    assert store.told == [["a"], ["a", "b"]]


async def test_work_that_is_made_again_tells_all_that_came_meanwhile_once() -> None:
    store = Slow()
    tell, _ = deliveries_of(store)
    tell("a")
    ((work, _future),) = store.riding
    work(store)
    tell("b")
    await store.call()
    await store.call()
    assert store.told == [["a"], ["a", "b"]]


async def test_a_closed_store_is_a_fault_and_no_failure_of_the_request() -> None:
    store = Slow()
    store.closed = True
    tell, failures = deliveries_of(store)
    tell("a")
    assert [str(error) for error in failures] == ["the store is closed"]
