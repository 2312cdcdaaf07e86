"""`engine.kind = "small"`: the embedded engine under bounds of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from afterwit.api.serving import EmbeddedSettings, Engine, EngineKind, open_engine


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallSettings:
    """`[engine]` with `kind = "small"`."""

    kind: Literal["small"] = "small"
    context_length: int = 2048
    """Tokens of prompt and response together."""


async def open_small(folder: Path, settings: SmallSettings, takes_weights: bool) -> Engine:
    """An engine that is ready. Raises SettingError if it cannot serve the model."""
    bounds = EmbeddedSettings(context_length=settings.context_length)
    return await open_engine(folder, bounds, takes_weights=takes_weights)


KIND = EngineKind(settings=SmallSettings, open=open_small)
