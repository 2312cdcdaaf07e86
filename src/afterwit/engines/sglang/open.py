"""Opens the SGLang engine."""

from __future__ import annotations

from pathlib import Path

from afterwit.engines.server.engine import ServerEngine
from afterwit.engines.server.open import open_server
from afterwit.engines.sglang.inspect import inspect
from afterwit.engines.sglang.settings import SglangSettings


async def open_sglang(folder: Path, settings: SglangSettings, *, takes_weights: bool = True) -> ServerEngine:
    """The engine, as `open_server` gives it."""
    return await open_server(
        folder, settings, inspect, kind=settings.kind, called="SGLang", takes_weights=takes_weights
    )
