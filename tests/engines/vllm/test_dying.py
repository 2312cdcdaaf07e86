"""A server whose engine dies: its process still answers for some seconds, with errors of its own."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web

from afterwit.config import load
from afterwit.engines.kinds import open_engine
from afterwit.engines.server.settings import VllmSettings
from afterwit.errors import EngineError, EngineUnavailable
from afterwit.running.serve import Runtime
from tests.engines.talk import ask, say
from tests.engines.vllm.recorded import Recorded, chunk, listening

WORDS = "EngineCore encountered an issue. See stack trace (above) for the root cause."
OTHER_WORDS = "CUDA error: an illegal memory access was encountered"


def said(words: str) -> dict[str, object]:
    return {"error": {"message": words, "type": "InternalServerError", "param": None, "code": 500}}


class Dying(Recorded):
    """Its engine dies within the first response, and is back once it was seen dead a few times."""

    def __init__(self, model: Path, *, words: str, looks: int = 3) -> None:
        super().__init__(model)
        self.words, self.dies, self.dead, self.looks = words, True, False, looks
        self.refused = 0
        self.stream = chunk((40, -0.5), (41, -0.5)) + b"data: " + orjson.dumps(said(words)) + b"\n\n"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.dead and request.path == "/health":
            self.looks -= 1
            if not self.looks:
                self.dead, self.stream = False, chunk((42, -0.5), (43, -0.5), end="length")
                self.adapters.clear()
            return web.Response(status=503)
        if self.dead:
            self.refused += 1
            return web.json_response(said(self.words), status=500)
        body = await request.read()
        if self.dies and request.path == "/inference/v1/generate" and orjson.loads(body).get("stream"):
            self.dies, self.dead = False, True
        return await super().answer(request)


@pytest.mark.parametrize("words", [WORDS, OTHER_WORDS])
async def test_a_response_goes_on_where_it_was_when_the_engine_is_back(words: str, qwen: Path) -> None:
    recorded = Dying(qwen, words=words)
    async with listening(recorded) as url:
        engine = await open_engine(qwen, VllmSettings(url=url, watch_s=0.01))
        response = await say(engine, ask(range(3, 9), max_tokens=4))
        await engine.close()
    assert response.ids == (40, 41, 42, 43)
    asked = [body["token_ids"] for body in recorded.bodies("/inference/v1/generate") if body.get("stream")]
    assert asked == [[*range(3, 9)], [*range(3, 9), 40, 41]]


@pytest.mark.parametrize("words", [WORDS, OTHER_WORDS])
async def test_whatever_is_asked_of_a_dying_server_waits_or_is_said_to_be_away(
    words: str, qwen: Path, adapters: list[Path]
) -> None:
    """A new version is not reported as unfit: it can be staged once the server is back."""
    recorded = Dying(qwen, words=words, looks=6)
    async with listening(recorded) as url:
        engine = await open_engine(qwen, VllmSettings(url=url, watch_s=0.05))
        recorded.dies, recorded.dead = False, True
        with pytest.raises(EngineUnavailable):
            await engine.stage(1, adapters[0])
        response = await say(engine, ask(range(3, 9), max_tokens=2))
        await engine.stage(1, adapters[0])
        await engine.close()
    assert response.ids == (42, 43)


async def test_an_error_of_a_server_that_is_well_stays_one(qwen: Path) -> None:
    recorded = Recorded(qwen)
    async with listening(recorded) as url:
        engine = await open_engine(qwen, VllmSettings(url=url, watch_s=0.01))
        recorded.stream = b"data: " + orjson.dumps(said("this prompt breaks it")) + b"\n\n"
        with pytest.raises(EngineError, match="this prompt breaks it"):
            await say(engine, ask(range(3, 9)))
        assert engine.fault is None
        await engine.close()


async def test_a_clients_stream_ends_without_an_error(qwen: Path, tmp_path: Path) -> None:
    recorded = Dying(qwen, words=WORDS)
    async with listening(recorded) as url:
        direct = {"model": str(qwen), "engine.kind": "vllm", "engine.url": url, "serve.port": 0}
        settings = load(home=tmp_path, direct=direct | {"engine.watch_s": 0.01}, environment={})
        body = {"model": "afterwit", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        async with Runtime(settings, tmp_path, ("gateway",)) as runtime:
            streamed = aiohttp.request(
                "POST", f"{runtime.url}/chat/completions", json=body | {"stream": True}
            )
            async with streamed as response:
                lines = (await response.text()).splitlines()
    events = [orjson.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert not [event for event in events if "error" in event]
    assert [choice["finish_reason"] for event in events for choice in event["choices"]][-1] == "length"
    assert "data: [DONE]" in lines
