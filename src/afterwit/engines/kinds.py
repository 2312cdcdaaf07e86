"""The table of engines: one entry per `engine.kind`. Torch is imported only when an engine needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from afterwit.core.errors import SettingError
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Engine
from afterwit.engines.server.command import ServerCommand
from afterwit.engines.sglang.settings import SglangSettings
from afterwit.engines.vllm.settings import VllmSettings


def _with_kind(section: Any) -> Any:
    """A section that names no kind is the embedded engine's."""
    return {"kind": EmbeddedSettings().kind} | section if isinstance(section, dict) else section


AnySettings = EmbeddedSettings | VllmSettings | SglangSettings
EngineSettings = Annotated[AnySettings, Field(discriminator="kind"), BeforeValidator(_with_kind)]
"""The section `engine`: one class for each kind."""


async def _open_embedded(folder: Path, settings: EmbeddedSettings, takes_weights: bool) -> Engine:
    try:
        from afterwit.engines.embedded.engine import EmbeddedEngine
    except ImportError as error:
        raise SettingError(
            f"the embedded engine needs {error.name}: install Afterwit with its extra `local`"
        ) from error
    return await asyncio.to_thread(EmbeddedEngine.load, folder, settings)


async def _open_vllm(folder: Path, settings: VllmSettings, takes_weights: bool) -> Engine:
    from afterwit.engines.fleet.open import open_each
    from afterwit.engines.vllm.open import open_vllm

    return await open_each(folder, settings, open_vllm, takes_weights=takes_weights)


async def _open_sglang(folder: Path, settings: SglangSettings, takes_weights: bool) -> Engine:
    from afterwit.engines.fleet.open import open_each
    from afterwit.engines.sglang.open import open_sglang

    return await open_each(folder, settings, open_sglang, takes_weights=takes_weights)


KINDS: Mapping[str, Callable[[Path, Any, bool], Awaitable[Engine]]] = {
    "embedded": _open_embedded,
    "vllm": _open_vllm,
    "sglang": _open_sglang,
}
"""What opens each kind: it gets the model folder, the settings of its kind, and whether new
weights will come."""


def _launch_vllm(folder: Path, settings: VllmSettings, **at: Any) -> ServerCommand:
    from afterwit.engines.vllm.command import command

    return command(folder, settings, **at)


def _launch_sglang(folder: Path, settings: SglangSettings, **at: Any) -> ServerCommand:
    from afterwit.engines.sglang.command import command

    return command(folder, settings, **at)


LAUNCHERS: Mapping[str, Callable[..., ServerCommand]] = {"vllm": _launch_vllm, "sglang": _launch_sglang}
"""What starts a server of each kind that can be started: it gets the model folder, the settings of its kind,
and by name `host`, `port`, `lora_rank` and `more`, flags that those of the settings override."""


async def open_engine(folder: Path, settings: AnySettings, *, takes_weights: bool = True) -> Engine:
    """The engine of `settings.kind`, ready to serve the model. SettingError if it cannot serve it.

    Without `takes_weights`, a server may lack what only new weights need.
    """
    return await KINDS[settings.kind](folder, settings, takes_weights)
