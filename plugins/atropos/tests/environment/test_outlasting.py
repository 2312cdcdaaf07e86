"""The server may be killed and restarted: the environment waits for it, and registers again."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer
from tenacity import RetryError, retry, stop_after_attempt

from afterwit.errors import SettingError
from afterwit_atropos.environment.env import outlasting, reached

AWAY = aiohttp.ClientConnectionError("reset")


PLACE: Any = SimpleNamespace(host="server", port=80, ssl=False, real_url="http://server")
REFUSED = aiohttp.ClientConnectorError(PLACE, ConnectionRefusedError("nobody"))


def forgot() -> aiohttp.ClientResponseError:
    return aiohttp.ClientResponseError(PLACE, (), status=500)


class Calls:
    """A call with these outcomes, in order; then it succeeds. Tried twice, as the library does."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.left, self.made = list(outcomes), 0

    async def __call__(self) -> None:
        self.made += 1
        outcome = self.left.pop(0) if self.left else None

        @retry(stop=stop_after_attempt(2))
        async def tried() -> None:
            if outcome is not None:
                raise outcome

        await tried()


async def ran(ask: Calls, register: Calls) -> int:
    """How often it slept."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await outlasting(ask, register, url="http://server", sleep=sleep)
    return len(slept)


async def test_a_server_that_answers_is_asked_once() -> None:
    ask, register = Calls(), Calls()
    assert await ran(ask, register) == 0
    assert (ask.made, register.made) == (1, 0)


async def test_a_server_that_is_away_is_waited_for_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ask, register = Calls(AWAY, AWAY, AWAY), Calls()
    with caplog.at_level(logging.WARNING):
        assert await ran(ask, register) == 3
    assert (ask.made, register.made) == (4, 0)
    assert caplog.messages == ["waiting for http://server: reset"]


async def test_a_server_that_forgot_is_registered_with_again_even_if_it_goes_away_meanwhile() -> None:
    ask, register = Calls(AWAY, forgot(), forgot()), Calls(AWAY)
    assert await ran(ask, register) == 2
    assert (ask.made, register.made) == (4, 2)


async def test_a_server_that_answers_after_nobody_listened_is_another_one() -> None:
    ask, register = Calls(AWAY, REFUSED, AWAY), Calls()
    assert await ran(ask, register) == 3
    assert (ask.made, register.made) == (5, 1)


async def test_a_server_that_goes_again_while_it_is_told_is_told_again() -> None:
    ask, register = Calls(REFUSED), Calls(AWAY)
    assert await ran(ask, register) == 2
    assert (ask.made, register.made) == (4, 2)


async def test_a_gateway_before_it_that_reaches_nobody_has_forgotten_nothing() -> None:
    unreachable = aiohttp.ClientResponseError(PLACE, (), status=502)
    ask, register = Calls(unreachable), Calls()
    assert await ran(ask, register) == 1
    assert (ask.made, register.made) == (2, 0)


async def test_what_is_no_failure_of_the_server_ends_the_run() -> None:
    async def ask() -> Any:
        raise ValueError("no number")

    with pytest.raises(ValueError, match="no number"):
        await outlasting(ask, Calls(), url="http://server")
    with pytest.raises(RetryError):
        await ran(Calls(ValueError("no number")), Calls())


async def test_a_server_that_is_not_there_yet_is_waited_for(unused_tcp_port: int) -> None:
    app = web.Application()
    app.router.add_get("/info", lambda request: web.json_response({"batch_size": -1}))
    server, slept = TestServer(app, port=unused_tcp_port), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            await server.start_server()

    await reached(f"http://127.0.0.1:{unused_tcp_port}/", sleep=sleep)
    await server.close()
    assert len(slept) == 2


async def test_another_program_at_the_address_is_named() -> None:
    server = TestServer(web.Application())
    await server.start_server()
    with pytest.raises(SettingError, match=r"is not a run-api of Atropos \(404\).*rollout_server_url"):
        await reached(str(server.make_url("/")))
    await server.close()
