"""Clients of the gateway's benchmarks: HTTP over plain sockets, so that they cost little themselves."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterable
from typing import Any

import orjson

from benchmarks.quick_engine import CHUNKS

CALLER = itertools.count()
WORDS = "The test fails because the fixture is opened twice, see line forty two. "


def small_body(*, stream: bool = False, model: str = "tiny") -> dict[str, Any]:
    """A first request of a session of its own: about 1 kB, none of its messages was ever sent before."""
    caller = f"{os.getpid()} {next(CALLER)}"
    return {
        "model": model,
        "stream": stream,
        "max_tokens": CHUNKS if stream else 64,
        "messages": [
            {"role": "system", "content": f"{caller}: {WORDS * 10}"},
            {"role": "user", "content": f"{caller}: where?"},
        ],
    }


def as_http(body: dict[str, Any]) -> bytes:
    data = orjson.dumps(body)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n"
    return f"{head}content-type: application/json\r\n\r\n".encode() + data


def small_requests(count: int, *, stream: bool = False) -> list[bytes]:
    return [as_http(small_body(stream=stream)) for _ in range(count)]


async def load(port: int, clients: int, requests: Iterable[bytes]) -> list[float]:
    """Seconds of each request, by clients that each have a connection."""
    waiting = iter(requests)
    seconds: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for data in waiting:
            began = time.perf_counter()
            await ask(reader, writer, data)
            seconds.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return seconds


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    """One request and the whole body of its answer, by content-length or in chunks."""
    writer.write(data)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200"), head
    if b"content-length: " in head:
        return await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    pieces = []
    while (size := int((await reader.readuntil(b"\r\n")).strip(), 16)) > 0:
        pieces.append(await reader.readexactly(size + 2))
    await reader.readexactly(2)
    return b"".join(piece[:-2] for piece in pieces)
