"""The command that starts an SGLang server with all that Afterwit asks of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from afterwit.engines.server.engine import ServerEngine
from afterwit.engines.server.inspect import adapted_modules, dtype_of
from afterwit.engines.server.open import open_server
from afterwit.engines.server.server import ServerCommand
from afterwit.engines.server.settings import SglangSettings
from afterwit.engines.sglang.inspect import inspect
from afterwit.errors import SettingError

ADAPTED = frozenset(
    (
        *("all", "q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "gate_proj", "up_proj", "down_proj"),
        *("gate_up_proj", "q_a_proj", "kv_a_proj_with_mqa", "q_b_proj", "kv_b_proj"),
    )
)
"""What its flag takes, of a decoder's projections."""


def command(
    folder: Path, settings: SglangSettings, *, host: str, port: int, lora_rank: int, more: Sequence[str] = ()
) -> ServerCommand:
    """The command line. EngineError if the model's weights cannot be read."""
    arguments = (
        *settings.command,
        *("--model-path", str(folder), "--host", host, "--port", str(port)),
        *("--dtype", dtype_of(folder, settings)),
        *flags(folder, settings, lora_rank=lora_rank),
        *more,
        *settings.flags,
    )
    return ServerCommand(arguments=arguments)


def flags(folder: Path, settings: SglangSettings, *, lora_rank: int) -> tuple[str, ...]:
    """The flags that the engine needs, whoever starts the server. SettingError if it cannot adapt it."""
    needed = (
        "--incremental-streaming-output",
        "--enable-priority-scheduling",
        "--grammar-backend",
        "llguidance",
    )
    if settings.swap == "whole":
        return needed
    modules = adapted_modules(folder)
    if unknown := [name for name in modules if name not in ADAPTED]:
        raise SettingError(
            f"SGLang has no adapters for {', '.join(unknown)} of {folder.name}: set engine.swap = "
            '"whole" and learner.lora_rank = 0, or take vLLM'
        )
    return (
        *needed,
        *("--enable-lora", "--max-lora-rank", str(lora_rank), "--lora-target-modules", *modules),
    )


async def open_sglang(folder: Path, settings: SglangSettings, *, takes_weights: bool = True) -> ServerEngine:
    """The engine, as `open_server` gives it."""
    return await open_server(
        folder, settings, inspect, kind=settings.kind, called="SGLang", takes_weights=takes_weights
    )
