"""A fake vLLM server that replays a recorded server's answers, each token after a decode step."""

from __future__ import annotations

import asyncio
import socket
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from tests.engines.vllm.recorded import Recorded, chunk

STEP_S = 0.02
"""Of 32 streams, as a GPU of the middle range takes for a model of some billion parameters."""
SLOTS = 16
"""Streams that a server whose batch is full samples for at a time; the others wait."""
CHAT = "/v1/chat/completions"


class Paced(Recorded):
    """`/inference/v1/generate` for the gateway, and chat completions of as many tokens for clients."""

    def __init__(self, model: Path, slots: int | None = None) -> None:
        """`slots`: streams that it samples for at a time; None: all."""
        super().__init__(model)
        self._slots = nullcontext() if slots is None else asyncio.Semaphore(slots)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == CHAT:
            body = orjson.loads(await request.read())
            words = (b"data: " + orjson.dumps(_piece("word ")) + b"\n\n",) * body["max_tokens"]
            async with self._slots:
                return await _stream(request, (*words, b"data: [DONE]\n\n"))
        return await super().answer(request)

    async def _generate(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            return await super()._generate(request, body)
        count = body["sampling_params"]["max_tokens"]
        ended = chunk((40, -0.5), end="length")
        events = (*(chunk((40, -0.5)),) * (count - 1), ended, b"data: [DONE]\n\n")
        async with self._slots:
            return await _stream(request, events)


def _piece(text: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny", "choices": [choice]}


async def _stream(request: web.Request, events: tuple[bytes, ...]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with suppress(ConnectionResetError):  # the client may leave after the last token
        for step, event in enumerate(events):
            await asyncio.sleep(began + step * STEP_S - loop.time())
            await response.write(event)
        await response.write_eof()
    return response


async def start_paced(model: Path, sock: socket.socket, slots: int | None = None) -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", Paced(model, slots).answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, sock).start()
