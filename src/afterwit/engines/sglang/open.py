"""Opens the SGLang engine: finds the server, proves that it fits the model, and makes the engine over it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from afterwit.core.errors import EngineError, SettingError
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.engine import ServerEngine
from afterwit.engines.server.facts import facts_of, tokenizer_of
from afterwit.engines.server.presence import answered
from afterwit.engines.sglang.inspect import capabilities, inspect
from afterwit.engines.sglang.server import SglangServer
from afterwit.engines.sglang.settings import SglangSettings
from afterwit.wire.model_text.folder import end_ids


async def open_sglang(folder: Path, settings: SglangSettings, *, takes_weights: bool = True) -> ServerEngine:
    """The engine, ready. SettingError if no server answers, or it does not fit the model, or lacks a flag.

    Without `takes_weights` it needs no flag for new weights.
    """
    swap = settings.swap if takes_weights else None
    client = ServerClient(settings.url, key=settings.key(os.environ), silence_s=settings.silence_s)
    try:
        await answered(client, "/health", called="SGLang", patience_s=settings.patience_s)
        ends = end_ids(folder, tokenizer_of(folder).token_to_id)
        found = await inspect(client, folder, swap, ends)
        facts = await asyncio.to_thread(
            facts_of,
            folder,
            settings,
            kind=settings.kind,
            context_length=found.context_length,
            dtype=found.dtype,
        )
        server = SglangServer(client, found.manner)
        can = capabilities(found, swap)
        return await ServerEngine.open(server, folder, settings, facts=facts, capabilities=can)
    except EngineError as error:
        await client.close()
        raise SettingError(f"the SGLang server at {client.url} cannot be used: {error}") from error
    except BaseException:
        await client.close()
        raise
