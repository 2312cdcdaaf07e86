"""The table of engines: one entry per `engine.kind`. Torch is imported only by the engine that needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from pydantic import BeforeValidator, Field

from afterwit import plugins
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Engine
from afterwit.engines.server.settings import AnyServer, LlamaCppSettings, SglangSettings, VllmSettings
from afterwit.errors import SettingError

if TYPE_CHECKING:
    from afterwit.engines.server.server import ServerCommand

MEMBERS = [name for name in (*Engine.__annotations__, *vars(Engine)) if not name.startswith("_")]
"""Of the engine port."""

AnySettings = EmbeddedSettings | AnyServer
SERVERS = ("vllm", "sglang", "llama_cpp")
"""The kinds whose model runs in a server."""


def _with_kind(section: Any) -> Any:
    return {"kind": EmbeddedSettings().kind} | section if isinstance(section, dict) else section


EngineSettings = Annotated[AnySettings, Field(discriminator="kind"), BeforeValidator(_with_kind)]
"""The section `engine`, one class for each kind. A section without a kind is the embedded engine's."""


async def _open_embedded(folder: Path, settings: EmbeddedSettings, takes_weights: bool) -> Engine:
    try:
        from afterwit.engines.embedded.engine import EmbeddedEngine
    except ImportError as error:
        raise SettingError(
            f"the embedded engine needs {error.name}: install Afterwit with its extra `local`"
        ) from error
    return await asyncio.to_thread(EmbeddedEngine.load, folder, settings)


async def _open_servers(folder: Path, settings: Any, takes_weights: bool) -> Engine:
    from afterwit.engines.server.fleet import open_fleet

    return await open_fleet(folder, settings, takes_weights=takes_weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """One value of the setting `engine.kind`."""

    settings: type
    """The section `[engine]` of this kind: a frozen data class with a field `kind` of one Literal."""
    open: Callable[[Path, Any, bool], Awaitable[Engine]]
    """From the model's folder, the settings, and whether new weights will come to an engine that is ready."""


def _is_named(name: str, kind: EngineKind) -> None:
    if get_args(get_type_hints(kind.settings)["kind"]) != (name,):
        raise TypeError(f"the kind of its settings is not Literal[{name!r}]")


KINDS = plugins.Table(
    plugins.ENGINES,
    EngineKind,
    {
        "embedded": EngineKind(settings=EmbeddedSettings, open=_open_embedded),
        "vllm": EngineKind(settings=VllmSettings, open=_open_servers),
        "sglang": EngineKind(settings=SglangSettings, open=_open_servers),
        "llama_cpp": EngineKind(settings=LlamaCppSettings, open=_open_servers),
    },
    _is_named,
)


def engine_section() -> Any:
    """The type of the section `[engine]` with the kinds of installed packages, for pydantic."""
    kinds: Any = reduce(or_, (kind.settings for kind in KINDS.usable().values()))
    return Annotated[kinds, Field(discriminator="kind"), BeforeValidator(_with_kind)]


def server_command(
    folder: Path, settings: AnyServer, *, host: str, port: int, lora_rank: int, more: Sequence[str] = ()
) -> ServerCommand:
    """The command that starts a server for the model. The flags of the settings override those in `more`.

    SettingError or EngineError if the server cannot serve it.
    """
    module = import_module(f"afterwit.engines.{settings.kind}.server")
    command: ServerCommand = module.command(
        folder, settings, host=host, port=port, lora_rank=lora_rank, more=more
    )
    return command


async def open_engine(folder: Path, settings: AnySettings, *, takes_weights: bool = True) -> Engine:
    """The engine of `settings.kind`, ready to serve the model. SettingError if it cannot serve it.

    Without `takes_weights`, a server may lack features that only new weights need.
    """
    engine = await KINDS[settings.kind].open(folder, settings, takes_weights)
    if missing := [name for name in MEMBERS if not hasattr(engine, name)]:
        raise SettingError(f"the engine {settings.kind} lacks {', '.join(missing)}: {type(engine).__name__}")
    return engine
