"""Real sockets: what a connection may cost before its key is known, and clients that close early."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.gateway.http_server import ConnectionLimits
from afterwit.gateway.settings import GatewaySettings
from afterwit.lifecycle import Reason
from tests.gateway.serving import USER, Serving, parse_stream, serving

PATIENT_S = 20.0
"""Longer than anything here takes on a slow machine."""


def request(**asked: object) -> bytes:
    body = orjson.dumps({"model": "tiny", "messages": USER, **asked})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def connect(gateway: Serving) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = gateway.url.removeprefix("http://").removesuffix("/v1").split(":")
    return await asyncio.open_connection(host, int(port))


async def answer_of(gateway: Serving, *pieces: bytes, half_close: bool = False) -> bytes:
    """Everything that the server sends until it closes."""
    reader, writer = await connect(gateway)
    with suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if half_close:
            writer.write_eof()
    try:
        async with asyncio.timeout(PATIENT_S):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    "headers",
    [b"X-Long: " + b"x" * 70_000, b"\r\n".join(b"X-%d: %s" % (n, b"y" * 90) for n in range(800))],
    ids=["one header", "many headers"],
)
async def test_headers_that_are_too_large_are_a_431_in_json_before_any_key_is_asked_for(
    gateway: Serving, headers: bytes
):
    await gateway.add_key("ann", "chat")
    start = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    head, _, body = (await answer_of(gateway, start, headers, b"\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body)["error"]["code"] == "headers_too_large"


async def test_headers_without_end_are_refused_while_they_come(gateway: Serving):
    """Nothing follows what is refused: a connection that closes with unread bytes is reset."""
    pieces = [b"GET / HTTP/1.1\r\nX-Long: ", *[b"x" * 1000] * 66]
    assert (await answer_of(gateway, *pieces)).startswith(b"HTTP/1.1 431 ")


async def test_large_bodies_and_ordinary_headers_pass(gateway: Serving):
    gateway.http.headers["x-long"] = "x" * 30_000
    for _ in range(3):
        answer = await gateway.ask([{"role": "user", "content": "Hi"}], metadata={"text": "y" * 200_000})
        assert answer.status_code == 200


def chunked(*trailers: bytes) -> bytes:
    """The request in one chunk, with trailers after its body."""
    head, _, body = request().partition(b"\r\n\r\n")
    head = head.rpartition(b"\r\n")[0] + b"\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    return head + b"%x\r\n%b\r\n0\r\n" % (len(body), body) + b"".join(trailers) + b"\r\n"


async def test_a_client_of_http_1_0_gets_its_stream_without_chunks_until_the_connection_ends(
    gateway: Serving,
):
    for asked in (request(stream=True), request()):
        head, _, body = (await answer_of(gateway, asked.replace(b"1.1", b"1.0"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"transfer-encoding" not in head
        if b"content-length" in head:
            assert json.loads(body)["choices"]
        else:
            assert parse_stream(body)


async def test_trailers_are_no_headers(gateway: Serving):
    said = [b"Host: evil.example\r\n", b"Authorization: Bearer aw-none\r\n", b"X-Session-Id: other\r\n"]
    assert (await answer_of(gateway, chunked(*said))).startswith(b"HTTP/1.1 200 ")


async def test_trailers_that_are_too_large_are_a_431(gateway: Serving):
    trailers = [b"X-%d: %s\r\n" % (n, b"y" * 90) for n in range(800)]
    assert (await answer_of(gateway, chunked(*trailers))).startswith(b"HTTP/1.1 431 ")


async def test_what_is_not_http_is_a_400_in_json(gateway: Serving):
    head, _, body = (await answer_of(gateway, b"\x16\x03\x01 hello\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "invalid_http"


async def test_a_connection_that_does_not_finish_its_headers_is_cut(tmp_path: Path, renderer: Renderer):
    limits = ConnectionLimits(header_timeout_s=0.05)
    async with serving(tmp_path, renderer, limits=limits) as gateway:
        assert await answer_of(gateway) == b""
        assert await answer_of(gateway, b"GET /healthz HTTP/1.1\r\nHost: loc") == b""


async def test_only_headers_are_hurried_an_answer_may_take_longer_and_later_headers_are_timed_too(
    tmp_path: Path, renderer: Renderer
):
    limits = ConnectionLimits(header_timeout_s=2.0)
    async with serving(tmp_path, renderer, limits=limits) as gateway:
        gateway.engine.pause_after = 0
        asked = asyncio.ensure_future(gateway.ask())
        await gateway.engine.paused.wait()
        first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        cut_after_two_seconds = await answer_of(gateway, first, b"GET /heal")
        assert cut_after_two_seconds.count(b"HTTP/1.1 200") == 1
        gateway.engine.resume.set()
        assert (await asked).status_code == 200


async def test_of_too_many_idle_connections_the_oldest_is_closed(tmp_path: Path, renderer: Renderer):
    async with serving(tmp_path, renderer, limits=ConnectionLimits(idle_connections=3)) as gateway:
        opened = [await connect(gateway) for _ in range(8)]
        async with asyncio.timeout(PATIENT_S):
            assert await opened[0][0].read() == b""
        assert (await gateway.ask()).status_code == 200
        for _, writer in opened:
            writer.close()


async def test_a_client_that_half_closes_before_its_body_is_complete_has_left(gateway: Serving):
    assert await answer_of(gateway, request()[:-5], half_close=True) == b""
    await gateway.app.in_flight.idle()
    assert await gateway.records() == []


async def test_a_client_that_closes_while_it_waits_has_left_and_the_engine_is_free(gateway: Serving):
    gateway.engine.pause_after = 0
    _, writer = await connect(gateway)
    writer.write(request())
    await gateway.engine.paused.wait()
    writer.close()
    async with asyncio.timeout(PATIENT_S):
        await gateway.app.in_flight.idle()
    (record,) = await gateway.records()
    assert (record.reason, gateway.engine.cancelled) == (Reason.CLIENT_LEFT, 1)


@pytest.mark.parametrize("pieces", ["at once", "byte by byte"])
@pytest.mark.parametrize("offer", [b"h2c", b"websocket"])
async def test_a_request_that_offers_another_protocol_is_answered_in_http_1(
    gateway: Serving, offer: bytes, pieces: str
):
    headers = (
        b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABk\r\n" % offer
    )
    line, _, rest = request().partition(b"\r\n")
    sent = line + b"\r\n" + headers + rest
    cut = [sent] if pieces == "at once" else [sent[at : at + 1] for at in range(len(sent))]
    head, _, body = (await answer_of(gateway, *cut)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body)["choices"]


async def test_many_offers_in_one_piece_are_all_answered(gateway: Serving):
    offering = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert (await answer_of(gateway, offering * 50 + last)).count(b"HTTP/1.1 200 ") == 51


async def test_bodies_that_never_end_do_not_keep_others_out(tmp_path: Path, renderer: Renderer):
    async with serving(tmp_path, renderer, settings=GatewaySettings(max_requests=2)) as gateway:
        opened = [await connect(gateway) for _ in range(6)]
        for _, writer in opened:
            writer.write(request()[:-1])
        async with asyncio.timeout(PATIENT_S):
            assert (await opened[0][0].read()).startswith(b"HTTP/1.1 408 ")
        for _ in range(3):
            assert (await gateway.ask()).status_code == 200
        for _, writer in opened:
            writer.close()


async def test_a_client_that_never_reads_its_stream_has_left(tmp_path: Path, renderer: Renderer):
    limits = ConnectionLimits(unread_s=0.1)
    body = orjson.dumps({"model": "tiny", "input": "Hi", "stream": True, "metadata": {"a": "x" * 15_000_000}})
    head = f"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    async with serving(tmp_path, renderer, limits=limits) as gateway:
        gateway.engine.pause_after = 0
        _, writer = await connect(gateway)
        writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's transport can
        writer.write(head.encode() + body)
        async with asyncio.timeout(PATIENT_S):
            await gateway.engine.paused.wait()
            gateway.engine.resume.set()
            await gateway.app.in_flight.idle()
        assert [record.reason for record in await gateway.records()] == [Reason.CLIENT_LEFT]
        writer.close()
