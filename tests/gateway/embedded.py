"""A gateway over the embedded engine and a real store, on a real socket, with the official clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai

from afterwit.chat_format.render import Renderer
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.gateway.app import GatewayApp
from afterwit.gateway.context import Gateway
from afterwit.gateway.http_server import Listener, bound_socket
from afterwit.gateway.settings import GatewaySettings
from afterwit.lifecycle import State
from afterwit.store import AsyncStore, Record
from afterwit.store.sqlite import SqliteStore

if TYPE_CHECKING:
    import anthropic


@dataclass
class World:
    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic
    store: AsyncStore
    says: list[str]
    """The model's responses, one text each; empty: it samples."""

    async def records(self) -> list[Record]:
        """All turns, oldest first."""
        return await self.store.call(lambda store: list(store.turns()))

    async def milk_was_read(self) -> Record:
        """Check that of two turns the second follows the first, whose tool returned milk; the second."""
        asked, answered = await self.records()
        assert (asked.state, answered.state) == (State.ANSWERED, State.OPEN)
        assert answered.turn.parent == asked.turn.id
        assert asked.next_state is not None
        assert [message.content for message in asked.next_state.messages] == ["milk"]
        return answered


@asynccontextmanager
async def embedded(folder: Path, model: Path, renderer: Renderer) -> AsyncIterator[World]:
    """`folder` gets the store. Everything is closed at the end."""
    import anthropic  # takes seconds, which a run without such tests saves

    says: list[str] = []

    def script(prompt_ids: tuple[int, ...]) -> Sequence[int] | None:
        return renderer.encode(says.pop(0)) if says else None

    engine = EmbeddedEngine.load(model, EmbeddedSettings(), script=script, seed=0)
    store = AsyncStore(SqliteStore.open(folder / "store.db", fingerprint=engine.facts.fingerprint))
    gateway = Gateway(engine=engine, renderer=renderer, store=store, settings=GatewaySettings())
    listener = Listener(GatewayApp(gateway), bound_socket("127.0.0.1", 0))
    await listener.start()
    root = listener.url.removesuffix("/v1")
    how: Any = {"api_key": "none needed", "max_retries": 0}
    plain, other = (
        openai.DefaultAsyncHttpxClient(verify=False),
        anthropic.DefaultAsyncHttpxClient(verify=False),
    )
    async with (
        openai.AsyncOpenAI(base_url=listener.url, http_client=plain, **how) as chat,
        anthropic.AsyncAnthropic(base_url=root, http_client=other, **how) as messages,
    ):
        yield World(chat, messages, store, says)
    await listener.stop(drain_s=5.0)
    await engine.close()
    await store.close()
