"""Servers that the gateway is compared with: each does the least that its work needs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Generate
from afterwit.errors import RequestError
from afterwit.gateway.limits import InFlight, send_json
from afterwit.turn import Sampling
from benchmarks.quick_engine import CHUNKS, QuickEngine

PIECE = 0xE0
"""Bytes of one of the gateway's chunks, about."""


class Plain:
    """The attributes that the listener reads from every plain server."""

    def __init__(self) -> None:
        self.in_flight = InFlight(1, 0)

    def error_body(self, path: str, error: RequestError) -> dict[str, Any]:
        return {"error": error.code}


class Bare(Plain):
    """The least that is a server: it reads, asks the engine and answers."""

    def __init__(self, engine: QuickEngine, renderer: Renderer) -> None:
        super().__init__()
        self._engine, self._renderer = engine, renderer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        json.loads((await receive())["body"])
        request = Generate(prompt_ids=(1, 2, 3), sampling=Sampling(max_tokens=64))
        ids = [token async for step in self._engine.generate(request) for token in step.ids]
        await send_json(send, 200, {"text": self._renderer.decode(ids)})


class Answer(Plain):
    """An OpenAI-compatible server with one answer to everything."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        message = {"role": "assistant", "content": "It is in the second file, on line forty two."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 250, "completion_tokens": 12, "total_tokens": 262}
        body = {"id": "a", "object": "chat.completion", "created": 1, "model": "tiny"}
        await send_json(send, 200, body | {"choices": [choice], "usage": usage})


class Pieces(asyncio.Protocol):
    """For each request CHUNKS writes of PIECE bytes, however it was sent."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._task = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(CHUNKS):
            self._transport.write(b"%x\r\n%b\r\n" % (PIECE, b"x" * PIECE))
            await asyncio.sleep(0)
        self._transport.write(b"0\r\n\r\n")
