"""The real gateway on a socket, with its store, in front of an engine that answers with each ask's reply."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Generate
from afterwit.store import Record
from afterwit.turn import Message
from experiments.replay.hosts.bodies import LIMITS, PATHS, body_of
from experiments.replay.hosts.port import Served
from experiments.replay.traffic import Ask
from tests.fakes.engine import FakeEngine
from tests.fakes.models import tiny_qwen3
from tests.gateway.serving import Serving, serving

CONTEXT = 1 << 24
FIRST_LIMIT = 1 << 20
"""Most tokens of the first response. Each ask has a limit of its own: by it the engine knows the ask."""
_RESPONSE = re.compile(r'"id": ?"(?:chatcmpl-|resp_|msg_)([0-9a-z]{26})')
PATIENT_S = 60.0
SHORT_S = 0.005
Asked = Coroutine[Any, Any, httpx.Response]


class GatewayHost:
    """Make it with `gateway_host`."""

    def __init__(self, gateway: Serving, engine: FakeEngine, replies: dict[int, Message]) -> None:
        self._gateway, self._engine, self._replies = gateway, engine, replies

    async def serve(self, asks: Sequence[Ask]) -> list[Served]:
        self._gateway.clock.at += 1.0
        return list(await asyncio.gather(*(self._served(ask) for ask in asks)))

    async def records(self) -> dict[str, Record]:
        return {record.turn.id: record for record in await self._gateway.records()}

    async def _served(self, ask: Ask) -> Served:
        limit = FIRST_LIMIT + len(self._replies)
        self._replies[limit] = ask.reply
        body = {**body_of(ask), "model": "tiny", LIMITS[ask.dialect]: limit}
        url = httpx.URL(self._gateway.url).copy_with(path=PATHS[ask.dialect])
        headers = {name: value for name, value in ask.headers.items() if name not in _OF_THE_CONNECTION}
        asked = self._gateway.http.post(url, json=body, headers=headers, timeout=PATIENT_S)
        turn = await (self._answered(asked) if ask.arrives else self._left(asked))
        record = await self._gateway.store.call(lambda store: store.turn(turn))
        return Served(ask=ask, turn=turn, answer=record.turn.message)

    async def _answered(self, asked: Asked) -> str:
        response = await asked
        found = _RESPONSE.search(response.text)
        if response.status_code != httpx.codes.OK or found is None:
            raise ValueError(f"{response.status_code}: {response.text[:500]}")
        return found[1]

    async def _left(self, asked: Asked) -> str:
        """The client goes away after the first tokens."""
        known = len(await self._gateway.records())
        self._engine.pause_after = 1
        task = asyncio.ensure_future(asked)
        async with asyncio.timeout(PATIENT_S):
            await self._engine.paused.wait()
            task.cancel()
            while len(records := await self._gateway.records()) == known:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(SHORT_S)
        self._engine.pause_after = None
        self._engine.paused.clear()
        return records[-1].turn.id


_OF_THE_CONNECTION = frozenset(
    {"host", "content-length", "connection", "accept-encoding", "transfer-encoding", "authorization"}
    | {"x-api-key", "content-type", "expect", "origin"}
)
"""Headers of the recorded connection, which are not those of the replayed one."""


@asynccontextmanager
async def gateway_host(folder: Path) -> AsyncIterator[GatewayHost]:
    """A gateway with its store in `folder`, until the block ends."""
    renderer = Renderer.load(tiny_qwen3(folder / "model"))
    replies: dict[int, Message] = {}

    def script(request: Generate) -> Sequence[int]:
        return renderer.encode(written(replies[request.sampling.max_tokens]))

    engine = FakeEngine(
        script,
        end_id=min(renderer.end_ids),
        vocabulary=renderer.vocabulary,
        context_length=CONTEXT,
    )
    async with serving(folder, renderer, engine=engine) as gateway:
        yield GatewayHost(gateway, engine, replies)


def written(reply: Message) -> str:
    """A reply as a model of Qwen3's convention writes it."""
    thought = "" if reply.reasoning is None else f"<think>\n{reply.reasoning}\n</think>\n\n"
    calls = [
        f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
        for call in reply.tool_calls
    ]
    return thought + "\n".join([*([reply.content] if reply.content else []), *calls])
