"""A fake vLLM server with one device, which samples and reads prompts in one step, as a GPU does.

A step takes as long as its work, or as long as reading the weights, whichever is more: STEP_S for any number
of streams, and READ_S for each prompt token whose log-probs are requested, up to CHUNK tokens. Prompts of
streams are found in the cache. Its answers are made up.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.engines.vllm.recorded import Recorded, chunk

STEP_S = 0.02
"""Of a decode step, as a GPU of the middle range takes for a model of some billion parameters."""
READ_S = 1e-4
"""Of a prompt token there, when many are read at once."""
CHUNK = 512
"""Prompt tokens of one step."""
LIKELIEST = b",".join(b'"%d":{"logprob":%d.0}' % (each, -1 - each) for each in range(20))


class Device:
    """Does one step after the other while there is work."""

    def __init__(self) -> None:
        self.streams = 0
        self._ended = asyncio.Event()
        self._prompts: deque[tuple[int, asyncio.Event]] = deque()
        self._work = asyncio.Event()
        self._running = asyncio.create_task(self._run())

    async def step(self) -> None:
        """Wait for the end of the step that runs."""
        self._work.set()
        await self._ended.wait()

    async def read(self, tokens: int) -> None:
        """Wait until `tokens` tokens of a prompt are read, after the prompts that came before."""
        read = asyncio.Event()
        self._prompts.append((tokens, read))
        self._work.set()
        await read.wait()

    async def _run(self) -> None:
        while True:
            if not self.streams and not self._prompts:
                self._work.clear()
                await self._work.wait()
            left, read = self._prompts.popleft() if self._prompts else (0, None)
            now = min(left, CHUNK)
            await asyncio.sleep(max(STEP_S if self.streams else 0.0, now * READ_S))
            ended, self._ended = self._ended, asyncio.Event()
            ended.set()
            if read is not None and left > now:
                self._prompts.appendleft((left - now, read))
            elif read is not None:
                read.set()


class OneDevice(Recorded):
    """`/inference/v1/generate`, each answer when the device is done with it."""

    def __init__(self, model: Path, device: Device) -> None:
        super().__init__(model)
        self._device = device

    async def _generate(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        params, ids = body["sampling_params"], body["token_ids"]
        if body.get("stream"):
            return await self._stream(request, params["max_tokens"])
        if params.get("prompt_logprobs", 0) < 2:
            return await super()._generate(request, body)
        await self._device.read(len(ids))
        rows = b",".join(b'{%b,"%d":{"logprob":-9.0}}' % (LIKELIEST, each) for each in ids[1:])
        return web.Response(body=b'{"prompt_logprobs":[null,%b]}' % rows, content_type="application/json")

    async def _stream(self, request: web.Request, count: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self._device.streams += 1
        try:
            with suppress(ConnectionResetError):  # the client may leave after the last token
                for left in reversed(range(count)):
                    await self._device.step()
                    await response.write(chunk((40, -0.5), end=None if left else "length"))
                await response.write_eof(b"data: [DONE]\n\n")
        finally:
            self._device.streams -= 1
        return response


async def start_one_device(model: Path, sock: socket.socket) -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", OneDevice(model, Device()).answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, sock).start()
