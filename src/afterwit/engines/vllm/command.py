"""The command that starts a vLLM server with all that Afterwit asks of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from afterwit.engines.server.engine import ServerEngine
from afterwit.engines.server.inspect import dtype_of, restriction_of
from afterwit.engines.server.open import open_server
from afterwit.engines.server.server import ServerCommand
from afterwit.engines.server.settings import VllmSettings
from afterwit.engines.vllm.inspect import EXTENSION, SAMPLES, WORKER, inspect
from afterwit.errors import SettingError

QUIET = {"VLLM_NO_USAGE_STATS": "1"}
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The largest ranks that vLLM can be told to make room for."""

ADAPTERS = 5
"""Adapters that answer at one time: the base's, the live one, a staged one, two of responses under way."""


def command(
    folder: Path, settings: VllmSettings, *, host: str, port: int, lora_rank: int, more: Sequence[str] = ()
) -> ServerCommand:
    """The command line and environment variables. SettingError if no flag makes room for the rank."""
    arguments = (
        *settings.command,
        *("serve", str(folder), "--host", host, "--port", str(port)),
        *("--dtype", dtype_of(folder, settings)),
        *flags(folder, settings, lora_rank=lora_rank),
        *more,
        *settings.flags,
    )
    return ServerCommand(arguments=arguments, environment=environment(settings))


def flags(folder: Path, settings: VllmSettings, *, lora_rank: int) -> tuple[str, ...]:
    """The flags that the engine needs, whoever starts the server.

    The projections are named because a server that might adapt the head too dies when it scores a prompt
    while another request runs.
    """
    needed = (
        SAMPLES,
        *("--logprobs-mode", "processed_logprobs"),
        *("--scheduling-policy", "priority"),
        *("--structured-outputs-config.backend", "guidance"),
    )
    if settings.swap == "whole":
        return (*needed, "--worker-extension-cls", EXTENSION)
    room = next((rank for rank in RANKS if rank >= lora_rank), None)
    if room is None:
        raise SettingError(f"learner.lora_rank is {lora_rank}, but vLLM has room for {RANKS[-1]} at most")
    adapters = ("--enable-lora", "--max-lora-rank", str(room), "--max-loras", str(ADAPTERS))
    return (*needed, *adapters, *restriction_of(folder))


def environment(settings: VllmSettings) -> dict[str, str]:
    """The environment variables that the engine needs, beside those that the server inherits.

    vLLM reports its usage to its makers unless it is told not to.
    """
    if settings.swap == "whole":
        return QUIET | {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": str(WORKER)}
    return QUIET | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


async def open_vllm(folder: Path, settings: VllmSettings, *, takes_weights: bool = True) -> ServerEngine:
    """The engine, as `open_server` gives it."""
    return await open_server(
        folder, settings, inspect, kind=settings.kind, called="vLLM", takes_weights=takes_weights
    )
