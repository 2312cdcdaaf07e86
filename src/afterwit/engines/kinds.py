"""The table of engines: one entry per `engine.kind`. Torch is imported only when an engine is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from afterwit.core.errors import SettingError
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Engine

EngineSettings = EmbeddedSettings
"""The section `engine`. A second engine makes this a union, told apart by `kind`."""


async def _open_embedded(folder: Path, settings: EmbeddedSettings) -> Engine:
    try:
        from afterwit.engines.embedded.engine import EmbeddedEngine
    except ImportError as error:
        raise SettingError(
            f"the embedded engine needs {error.name}: install Afterwit with its extra `local`"
        ) from error
    return await asyncio.to_thread(EmbeddedEngine.load, folder, settings)


KINDS: Mapping[str, Callable[[Path, Any], Awaitable[Engine]]] = {"embedded": _open_embedded}
"""What opens each kind: it gets the model folder and the settings of its kind."""


async def open_engine(folder: Path, settings: EngineSettings) -> Engine:
    """The engine of `settings.kind`, ready to serve the model. SettingError if it cannot serve it."""
    return await KINDS[settings.kind](folder, settings)
