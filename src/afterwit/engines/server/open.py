"""Opens an engine on a server: waits for it, proves that it fits the model, and makes the engine over it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.engine import ServerEngine
from afterwit.engines.server.inspect import answered, capabilities, facts_of
from afterwit.engines.server.server import Server
from afterwit.engines.server.settings import ServerSettings, Swap
from afterwit.errors import EngineError, SettingError
from afterwit.turn import Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A server that is fit for the model."""

    server: Server
    context_length: int
    dtype: str | None
    """What it computes in; None: it does not say."""
    basis: Basis
    scored_ids: int
    """Most ids of a place that it tells beside the one that is there."""
    scores_given: bool = False
    """It scores any ids at a place."""
    keeps_schemas: bool
    """It keeps a response to a JSON schema."""


Inspect = Callable[[ServerClient, Path, Swap | None], Awaitable[Fit]]
"""(client, model folder, how new weights come) -> the server. SettingError with all that is missing."""


async def open_server(
    folder: Path,
    settings: ServerSettings,
    inspect: Inspect,
    *,
    kind: str,
    called: str,
    takes_weights: bool,
) -> ServerEngine:
    """The engine, ready. SettingError if it does not fit the model, or lacks a flag; NobodyAnswers.

    `called` is the kind's name for people. Without `takes_weights` it needs no flag for new weights.
    """
    swap = settings.swap if takes_weights else None
    (url,) = settings.urls
    client = ServerClient(url, key=settings.key(os.environ), silence_s=settings.silence_s)
    try:
        await answered(client, "/health", called=called, patience_s=settings.patience_s)
        fit = await inspect(client, folder, swap)
        context = fit.context_length
        facts = await asyncio.to_thread(
            facts_of, folder, settings, kind=kind, context_length=context, dtype=fit.dtype
        )
        can = capabilities(fit.basis, context, fit.scored_ids, swap, keeps_schemas=fit.keeps_schemas)
        return await ServerEngine.open(fit.server, folder, settings, facts=facts, capabilities=can)
    except EngineError as error:
        await client.close()
        raise SettingError(f"the {called} server at {client.url} cannot be used: {error}") from error
    except BaseException:
        await client.close()
        raise
