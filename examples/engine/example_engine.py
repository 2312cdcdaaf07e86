"""`engine.kind = "small"`: the embedded engine under bounds of its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from afterwit.engines.kinds import EngineKind
from afterwit.engines.port import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallSettings:
    """`[engine]` with `kind = "small"`."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    kind: Literal["small"] = "small"
    context_length: int = 2048
    """Tokens of prompt and response together."""


async def open_small(folder: Path, settings: SmallSettings, takes_weights: bool) -> Engine:
    """An engine that is ready. Raises SettingError if it cannot serve the model."""
    from afterwit.engines.embedded.engine import EmbeddedEngine
    from afterwit.engines.embedded.settings import EmbeddedSettings

    bounds = EmbeddedSettings(context_length=settings.context_length)
    return await asyncio.to_thread(EmbeddedEngine.load, folder, bounds)


KIND = EngineKind(settings=SmallSettings, open=open_small)
