"""Places: how many there are, and what waits for them to be free."""

from __future__ import annotations

import asyncio

import pytest

from afterwit.core.errors import RequestError
from afterwit.stages.gateway.http.in_flight import InFlight


def test_what_does_not_fit_is_told_to_come_back():
    load = InFlight(3)
    with load.hold(2):
        with pytest.raises(RequestError) as refused, load.hold(2):
            pass
        assert refused.value.status == 429
        with load.hold(1):
            assert load.count == 3
    assert load.count == 0


def test_an_idle_server_takes_a_request_of_any_size():
    with InFlight(2).hold(8) as held:
        assert held is None


async def test_a_drain_refuses_the_new_and_waits_for_the_running():
    load = InFlight(3)
    with load.hold(1):
        drain = asyncio.ensure_future(load.drain())
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as refused, load.hold(1):
            pass
        assert refused.value.status == 503
        assert not drain.done()
    await drain
