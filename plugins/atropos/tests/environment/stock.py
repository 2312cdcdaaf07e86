"""Stock vLLM and SGLang servers of the demo's model, and the environment on either."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from afterwit_atropos.demo import MODEL, SETTINGS
from tests.servers.server import Launch, Server, Servers

CONTEXT = 1024
"""Of that model."""
NEEDED: Mapping[str, tuple[str, ...]] = {
    "vllm": ("--enable-scale-out", "--max-model-len", str(CONTEXT)),
    "sglang": ("--context-length", str(CONTEXT)),
}
"""The flags of the environment's documentation, with the model's own length."""


def stock(servers: Servers, name: str, *more: str, environment: Mapping[str, str] | None = None) -> Server:
    """The server, started if it does not run. Skips the test where it is not installed."""
    variables = tuple(sorted((environment or {}).items()))
    launch = Launch(server=name, model=MODEL, flags=(*NEEDED[name], *more), environment=variables)
    try:
        return servers.get(launch)
    except FileNotFoundError as error:
        pytest.skip(str(error))


def fields(folder: Path, **more: Any) -> dict[str, Any]:
    """Settings of the environment for the tools world on a server."""
    own = {
        "task_set": "tools_world",
        "engine": "server",
        "tokenizer_name": str(MODEL),
        "afterwit_config": str(SETTINGS),
        "max_agent_turns": 8,
        "max_token_length": 96,
        "use_wandb": False,
        "tensorboard_dir": str(folder / "metrics"),
    }
    return own | more
