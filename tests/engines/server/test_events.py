"""Streamed answers of a server: events, however the network cuts them."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from afterwit.engines.server.client import ServerClient

STREAM = (
    b': hello\n\ndata: {"a": 1}\n\ndata:{"b": "\xc3\xa9"}\r\n\r\nevent: more\ndata: [2]\n\ndata: [DONE]\n\n'
)


async def reads_of(pieces: list[bytes]) -> list[list[object]]:
    """The client's reads of an answer that is sent in these pieces."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    app = web.Application()
    app.router.add_post("/stream", answer)
    async with TestServer(app) as server:
        client = ServerClient(str(server.make_url("/")), key=None, silence_s=10)
        reads = [events async for events in client.events("/stream", {})]
        await client.close()
    return reads


async def events_of(pieces: list[bytes]) -> list[object]:
    return [event for events in await reads_of(pieces) for event in events]


@pytest.mark.parametrize("size", [1, 7, len(STREAM)])
async def test_events_are_whole_however_the_answer_is_cut(size):
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert await events_of(pieces) == [{"a": 1}, {"b": "é"}, [2]]


async def test_events_that_came_together_are_told_together():
    assert await reads_of([STREAM]) == [[{"a": 1}, {"b": "é"}, [2]]]


async def test_an_event_that_the_end_of_the_answer_ends_is_read():
    assert await events_of([b"data: [1]\n\ndata: ", b"[2]"]) == [[1], [2]]
