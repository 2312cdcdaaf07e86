"""Waiting for a server at the start ends when the patience does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from afterwit.engines.server.client import ServerClient, answered
from afterwit.errors import SettingError


@pytest.fixture
async def slow() -> AsyncIterator[str]:
    """The URL of a server that answers an hour late."""

    async def late(request: web.Request) -> web.Response:
        await asyncio.sleep(3600)
        return web.Response()

    app = web.Application()
    app.router.add_get("/health", late)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


async def test_a_server_that_answers_too_late_costs_the_patience(slow: str) -> None:
    client = ServerClient(slow, key=None, silence_s=7200)
    with pytest.raises(SettingError, match=r"no vLLM server answered.*did not answer in time.*afterwit up"):
        await answered(client, label="vLLM", patience_s=0.2)
    await client.close()


async def test_a_server_that_is_not_there_yet_is_waited_for_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="afterwit")
    client = ServerClient("http://127.0.0.1:9", key=None, silence_s=60)
    with pytest.raises(SettingError, match=r"no vLLM server answered"):
        await answered(client, label="vLLM", patience_s=3)
    await client.close()
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "waiting up to 3 s for a vLLM server: the server at http://127.0.0.1:9"
    )
