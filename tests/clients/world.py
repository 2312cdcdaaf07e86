"""The gateway that clients call: the embedded engine over a tiny model that reads long prompts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from afterwit.chat_format.render import Renderer
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.gateway.app import GatewayApp
from afterwit.gateway.context import Gateway
from afterwit.gateway.http_server import Listener, bound_socket
from afterwit.gateway.settings import GatewaySettings
from afterwit.store import AsyncStore, Record
from afterwit.store.sqlite import SqliteStore
from tests.clients.errand import ScriptedModel, response_to
from tests.fakes.models import tiny_qwen3

CONTEXT = 131_072
"""Tokens. Agents' first prompts have up to 90,000 characters."""


def long_reader(folder: Path) -> Path:
    """A model of one narrow layer, whose tokenizer knows the words of these pages."""
    root = Path(__file__).parents[2]
    pages = tuple(page.read_text(encoding="utf-8") for page in sorted((root / "docs").rglob("*.md")))
    shape = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    return tiny_qwen3(folder, corpus=pages, vocabulary=6000, max_position_embeddings=CONTEXT, **shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    url: str
    store: AsyncStore
    model: ScriptedModel

    async def records(self) -> list[Record]:
        """All turns, oldest first."""
        return await self.store.call(lambda store: list(store.turns()))


@asynccontextmanager
async def gateway(
    folder: Path, model: Path, respond: Callable[[str], str] = response_to
) -> AsyncIterator[World]:
    """`folder` gets the store. `respond` is the model. Everything is closed at the end."""
    renderer = Renderer.load(model)
    scripted = ScriptedModel(renderer=renderer, respond=respond)
    settings = EmbeddedSettings(context_length=CONTEXT, prefill_chunk=2048)
    engine = EmbeddedEngine.load(model, settings, script=scripted, seed=0)
    store = AsyncStore(SqliteStore.open(folder / "store.db", fingerprint=engine.facts.fingerprint))
    gateway = Gateway(engine=engine, renderer=renderer, store=store, settings=GatewaySettings())
    listener = Listener(GatewayApp(gateway), bound_socket("127.0.0.1", 0))
    await listener.start()
    try:
        yield World(url=listener.url, store=store, model=scripted)
    finally:
        await listener.stop(drain_s=5.0)
        await engine.close()
        await store.close()
