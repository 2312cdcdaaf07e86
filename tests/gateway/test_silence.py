"""A stream begins soon and is never silent for long, whatever the model is busy with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.errors import EngineUnavailable, RequestError, RequestRefused
from afterwit.gateway.respond import ResponseWriter
from afterwit.gateway.settings import GatewaySettings
from afterwit.lifecycle import State
from afterwit.turn import Finish
from tests.fakes.plain_dialect import PlainEncoder, parse
from tests.gateway.serving import USER, Serving, serving
from tests.gateway.test_every_dialect import APIS

BEATS = {"chat": ": ping\n\n", "responses": ": ping\n\n", "messages": "event: ping\n"}
OPENINGS = {
    "chat": '"role":"assistant"',
    "responses": "event: response.created\n",
    "messages": "event: message_start\n",
}
MANY = 4
"""Heartbeats, and Anthropic's stream begins with one."""
each = pytest.mark.parametrize("name", APIS)


@pytest.fixture
async def lively(tmp_path: Path, renderer: Renderer) -> AsyncIterator[Serving]:
    async with serving(tmp_path, renderer, settings=GatewaySettings(heartbeat_s=0.02)) as made:
        yield made


async def read_until_it_has_beaten(answer: httpx.Response, name: str) -> tuple[str, AsyncIterator[str]]:
    """The text of a stream up to its heartbeats, and the rest of the stream."""
    pieces, read = answer.aiter_text(), ""
    while read.count(BEATS[name]) < MANY:
        read += await anext(pieces)
    return read, pieces


@each
async def test_a_stream_begins_before_its_first_token_and_beats_while_there_is_none(
    lively: Serving, name: str
):
    lively.engine.pause_after = 0
    api = APIS[name]
    async with lively.http.stream("POST", api.path, json=api.body(stream=True)) as answer:
        assert answer.status_code == 200
        assert answer.headers["x-afterwit-turn"]
        read, rest = await read_until_it_has_beaten(answer, name)
        assert read.startswith(("data: {", "event: "))
        assert OPENINGS[name] in read
        lively.engine.resume.set()
        read += "".join([piece async for piece in rest])
    assert read.count(OPENINGS[name]) == 1
    assert api.last in read.strip().split("\n\n")[-1]


@each
async def test_an_engine_that_fails_after_a_stream_began_ends_it_with_an_event(lively: Serving, name: str):
    lively.engine.pause_after = 0
    lively.engine.fail_after = 1
    api = APIS[name]
    async with lively.http.stream("POST", api.path, json=api.body(stream=True)) as answer:
        _, rest = await read_until_it_has_beaten(answer, name)
        lively.engine.resume.set()
        last = [piece async for piece in rest][-1]
    assert "engine of this server failed" in last
    assert await lively.records() == []


@each
@pytest.mark.parametrize(
    ("error", "status"),
    [(RequestRefused("odd", field="prompt"), 400), (EngineUnavailable("gone"), 502)],
)
async def test_an_engine_that_refuses_at_once_gives_a_stream_its_status(
    lively: Serving, name: str, error: Exception, status: int
):
    lively.engine.fail_after, lively.engine.error = 0, error
    assert (await APIS[name].ask(lively, stream=True)).status_code == status


@each
async def test_a_body_that_is_sent_whole_has_no_heartbeats(lively: Serving, name: str):
    lively.engine.pause_after = 0
    running = asyncio.ensure_future(APIS[name].ask(lively))
    await lively.engine.paused.wait()
    await asyncio.sleep(0.4)
    lively.engine.resume.set()
    assert json.loads((await running).content)["id"]


@each
async def test_a_client_that_gave_up_before_the_first_token_asks_again_as_a_retry(lively: Serving, name: str):
    lively.engine.pause_after = 0
    api = APIS[name]
    async with lively.http.stream("POST", api.path, json=api.body(stream=True)) as answer:
        await read_until_it_has_beaten(answer, name)
    await lively.app.in_flight.idle()
    assert lively.engine.cancelled == 1
    lively.engine.pause_after = None
    await api.ask(lively, stream=True)
    left, again = await lively.records()
    assert (left.turn.finish, left.superseded_by) == (Finish.CLIENT_LEFT, again.turn.id)
    assert (left.state, again.state) == (State.SKIPPED, State.OPEN)


async def test_the_official_clients_read_past_heartbeats(lively: Serving):
    import anthropic

    lively.engine.pause_after = 0
    asked: Any = {"model": "tiny"}
    said: list[Any] = USER

    async def resume() -> None:
        await lively.engine.paused.wait()
        await asyncio.sleep(0.4)
        lively.engine.resume.set()

    def pause() -> asyncio.Task[None]:
        lively.engine.paused.clear()
        lively.engine.resume.clear()
        return asyncio.ensure_future(resume())

    async with lively.openai as agent:
        resuming = pause()
        async with agent.chat.completions.stream(**asked, messages=said) as chat:
            assert (await chat.get_final_completion()).choices[0].message.content == "Hello there."
        await resuming
        resuming = pause()
        async with agent.responses.stream(**asked, input="Open it.") as response:
            assert (await response.get_final_response()).output_text == "Hello there."
        await resuming
    resuming = pause()
    root = lively.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=root, api_key="x", max_retries=0) as client:
        async with client.messages.stream(**asked, messages=said, max_tokens=99) as message:
            assert await message.get_final_text() == "Hello there."
    await resuming


async def test_what_a_slow_client_gets_is_in_order():
    """Its sends wait: the opening is sent before what was written after it, and nothing after the last."""
    sent: list[bytes] = []
    readable = asyncio.Event()

    async def send(message: MutableMapping[str, Any]) -> None:
        await readable.wait()
        sent.append(message.get("body", b"<head>"))

    head: Any = type("Head", (), {"prompt_tokens": 7})
    request = parse({"prompt": "Hi", "stream": True}, GatewaySettings().request_limits)
    writer = ResponseWriter(send, PlainEncoder(request, head), (), heartbeat_s=0.001)
    async with writer.kept_alive(0):
        await asyncio.sleep(0.3)
        readable.set()
        await asyncio.sleep(0.05)
    await writer.fail(RequestError(500, "engine_failed", "It is gone."))
    await asyncio.sleep(0.05)
    assert sent[:2] == [b"<head>", b"read 7\n"]
    assert set(sent[2:-1]) == {PlainEncoder.heartbeat}
    assert sent[-1] == b"failed engine_failed\n"
