"""Opens the vLLM engine."""

from __future__ import annotations

from pathlib import Path

from afterwit.engines.server.engine import ServerEngine
from afterwit.engines.server.open import open_server
from afterwit.engines.vllm.inspect import inspect
from afterwit.engines.vllm.settings import VllmSettings


async def open_vllm(folder: Path, settings: VllmSettings, *, takes_weights: bool = True) -> ServerEngine:
    """The engine, as `open_server` gives it."""
    return await open_server(
        folder, settings, inspect, kind=settings.kind, called="vLLM", takes_weights=takes_weights
    )
