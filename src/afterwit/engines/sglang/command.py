"""The command that starts an SGLang server with all that Afterwit asks of it."""

from __future__ import annotations

from pathlib import Path

from afterwit.engines.server.command import ServerCommand
from afterwit.engines.server.fitness.facts import dtype_of
from afterwit.engines.server.fitness.modules import adapted_modules
from afterwit.engines.sglang.settings import SglangSettings


def command(folder: Path, settings: SglangSettings, *, host: str, port: int, lora_rank: int) -> ServerCommand:
    """The command line. EngineError if the model's weights cannot be read."""
    arguments = (
        *settings.command,
        *("--model-path", str(folder), "--host", host, "--port", str(port)),
        *("--dtype", dtype_of(folder, settings)),
        *flags(folder, settings, lora_rank=lora_rank),
        *settings.flags,
    )
    return ServerCommand(arguments=arguments)


def flags(folder: Path, settings: SglangSettings, *, lora_rank: int) -> tuple[str, ...]:
    """The flags that the engine needs, whoever starts the server."""
    needed = (
        "--incremental-streaming-output",
        "--enable-priority-scheduling",
        "--grammar-backend",
        "llguidance",
    )
    if settings.swap == "whole":
        return needed
    modules = adapted_modules(folder)
    return (
        *needed,
        *("--enable-lora", "--max-lora-rank", str(lora_rank), "--lora-target-modules", *modules),
    )
