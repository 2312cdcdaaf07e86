"""A gateway with a scripted engine and a real store, on a real socket.

Clients do not verify certificates: the socket has none, and reading the machine's takes longer than the rest.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import httpx
import openai

from afterwit.chat_format.render import Renderer
from afterwit.dialects.dialect import Dialect
from afterwit.dialects.table import DIALECTS
from afterwit.engines.port import Engine, Generate
from afterwit.gateway.app import GatewayApp
from afterwit.gateway.context import Gateway
from afterwit.gateway.http_server import ConnectionLimits, Listener, bound_socket
from afterwit.gateway.settings import GatewaySettings
from afterwit.page.app import RollBack
from afterwit.store import AsyncStore, Record
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import AdapterPolicy
from tests.fakes.engine import FakeEngine

T = TypeVar("T")

TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
USER = [{"role": "user", "content": "Open it."}]


@dataclass
class Clock:
    """Time that only a test moves."""

    at: float = 1_760_000_000.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Serving:
    """One gateway and everything around it."""

    app: GatewayApp
    url: str
    engine: FakeEngine
    store: AsyncStore
    http: httpx.AsyncClient
    clock: Clock
    says: list[str] = field(default_factory=lambda: ["Hello there."])
    """The engine's responses: one text each, the last one for ever."""
    woken: list[bool] = field(default_factory=list)
    servers: dict[str, str] = field(default_factory=dict)
    """Why a server that it started is gone."""

    @property
    def owner(self) -> dict[str, str]:
        """The header of the token's owner, without other keys."""
        return {"authorization": f"Bearer {self.app.gateway.token}"}

    async def ask(self, messages: Sequence[dict[str, Any]] = USER, **more: Any) -> httpx.Response:
        return await self.http.post(
            "/chat/completions", json={"model": "tiny", "messages": list(messages), **more}
        )

    async def chunks(self, messages: Sequence[dict[str, Any]] = USER, **more: Any) -> list[dict[str, Any]]:
        """The objects of a stream, `[DONE]` checked and left out."""
        answer = await self.ask(messages, stream=True, **more)
        assert answer.status_code == 200, answer.text
        return parse_stream(answer.content)

    async def records(self) -> list[Record]:
        """All turns, oldest first."""
        return await self.store.call(lambda store: list(store.turns()))

    async def add_key(self, name: str, *scopes: str) -> str:
        from afterwit.gateway.auth import hash_key

        key = f"aw-{name}"
        await self.store.call(lambda store: store.add_key(name, scopes, hash_key(key), now=self.clock()))
        self.clock.at += 10.0
        return key

    @property
    def openai(self) -> openai.AsyncOpenAI:
        """To be closed by the caller."""
        http = openai.DefaultAsyncHttpxClient(verify=False)
        return openai.AsyncOpenAI(base_url=self.url, api_key="x", max_retries=0, http_client=http)


def parse_stream(content: bytes) -> list[dict[str, Any]]:
    *events, done, rest = content.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def folded(chunks: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The sum of each choice's deltas, in the form of a body's choice."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for part in chunk["choices"]:
            choice = choices.setdefault(
                part["index"], {"message": {}, "logprobs": None, "finish_reason": None}
            )
            _add(choice["message"], part["delta"])
            if part["logprobs"]:
                choice["logprobs"] = choice["logprobs"] or {"content": [], "refusal": None}
                choice["logprobs"]["content"] += part["logprobs"]["content"]
            choice["finish_reason"] = part["finish_reason"] or choice["finish_reason"]
    return choices


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if name != "tool_calls":
            message[name] = message.get(name, "") + value
            continue
        calls = message.setdefault("tool_calls", [])
        for part in value:
            if part["index"] == len(calls):
                calls.append(
                    {"id": part["id"], "type": part["type"], "function": {"name": "", "arguments": ""}}
                )
            for key, piece in part["function"].items():
                calls[part["index"]]["function"][key] += piece


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose empty content is None: a stream cannot distinguish the two."""
    return message | {"content": message.get("content") or None}


Script = Callable[[Generate], Sequence[int]]


@asynccontextmanager
async def serving(
    folder: Path,
    renderer: Renderer,
    *,
    settings: GatewaySettings | None = None,
    limits: ConnectionLimits | None = None,
    dialects: tuple[Dialect, ...] = DIALECTS,
    engine: Engine | None = None,
    roll_back: RollBack | None = None,
    adapters: AdapterPolicy = AdapterPolicy(),
    opened: type[SqliteStore] = SqliteStore,
    **engine_changes: Any,
) -> AsyncIterator[Serving]:
    """`folder` gets the store. Everything is closed at the end."""
    says = ["Hello there."]

    def script(request: Generate) -> Sequence[int]:
        text = says.pop(0) if len(says) > 1 else says[0]
        return renderer.encode(text)

    fake = FakeEngine(script, end_id=min(renderer.end_ids), vocabulary=renderer.vocabulary, **engine_changes)
    store = AsyncStore(opened.open(folder / "store.db", fingerprint=None))
    clock, woken, turns, servers = Clock(), [], count(1), dict[str, str]()
    gateway = Gateway(
        engine=engine or fake,
        renderer=renderer,
        store=store,
        settings=settings or GatewaySettings(heartbeat_s=3600.0),
        dialects=dialects,
        adapters=adapters,
        wake_judge=lambda: woken.append(True),
        servers=lambda: servers,
        now=clock,
        entropy=lambda size: next(turns).to_bytes(size),
    )
    app = GatewayApp(gateway, roll_back)
    listener = Listener(app, bound_socket("127.0.0.1", 0), limits or ConnectionLimits())
    await listener.start()
    async with httpx.AsyncClient(base_url=listener.url, timeout=20.0, verify=False) as http:
        yield Serving(app, listener.url, fake, store, http, clock, says, woken, servers)
    await listener.stop(drain_s=5.0)
    await gateway.backlog.close(0.0)
    await store.close()
