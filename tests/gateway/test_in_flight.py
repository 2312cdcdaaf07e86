"""Requests in flight: the limit, and the drain."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress

import pytest

from afterwit.errors import RequestError
from afterwit.gateway.limits import InFlight


def test_a_request_that_does_not_fit_is_a_429():
    places = InFlight(3, 10)
    with places.admit() as first:
        first(2)
        with places.admit() as second, pytest.raises(RequestError) as refused:
            second(2)
        assert refused.value.status == 429
        with places.admit():
            assert places.count == 3
            with pytest.raises(RequestError), places.admit():
                pass
    assert places.count == 0


def test_of_several_keys_none_can_hold_every_place():
    places = InFlight(100, 10)

    def hold(held: ExitStack, key: str | None, choices: int) -> int:
        """As many requests of a key as are admitted: how many places they hold."""
        before = places.count
        for _ in range(200):
            with suppress(RequestError):
                held.enter_context(places.admit(key))(choices)
        return places.count - before

    with ExitStack() as held:
        assert hold(held, "greedy", 16) == 80
        assert hold(held, "second", 1) == 16
        assert hold(held, "third", 1) == 3
        with places.admit("fourth"):
            assert places.count <= 100
    with ExitStack() as held:
        assert hold(held, None, 1) == 100
    with places.admit("greedy") as take:
        take(100)


def test_an_idle_server_takes_a_request_of_any_size():
    with InFlight(2, 10).admit() as alone:
        alone(8)


async def test_a_drain_refuses_the_new_and_waits_for_the_running():
    places = InFlight(3, 10)
    with places.admit():
        drain = asyncio.ensure_future(places.drain())
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as refused, places.admit():
            pass
        assert refused.value.status == 503
        assert not drain.done()
    await drain


def test_bodies_that_do_not_fit_in_memory_together_are_a_429():
    places = InFlight(3, 10)
    with places.body() as one:
        one(6)
        with places.body() as other:
            other(4)
            with pytest.raises(RequestError) as refused:
                other(1)
            assert refused.value.status == 429
        with places.body() as next_one:
            next_one(4)
    with places.body() as alone:
        alone(8)
        alone(8)


async def test_of_too_many_bodies_that_are_being_received_the_first_is_cut_off():
    places, never = InFlight(2, 10), asyncio.Event()

    async def receive() -> None:
        async with places.receiving():
            await never.wait()

    bodies = [asyncio.ensure_future(receive()) for _ in range(3)]
    with pytest.raises(RequestError) as refused:
        await bodies[0]
    assert (refused.value.status, refused.value.code) == (408, "body_timeout")
    never.set()
    await asyncio.gather(*bodies[1:])
