"""How much memory keys and values may take."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from afterwit.core.model_shape import kept_per_token
from afterwit.engines.embedded.settings import EmbeddedSettings

GIB = 2**30
SHARE = 8
"""`keep_gib` unset: the device's memory is divided by this. The engine's weights, those that it stages,
and the learner need the rest."""
CONTAINER = Path("/sys/fs/cgroup/memory.max")
"""The limit of a container on Linux; a number, or the word `max`."""


def budget_of(settings: EmbeddedSettings, device: torch.device) -> int:
    """Bytes for keys and values that are kept."""
    if settings.keep_gib is not None:
        return int(settings.keep_gib * GIB)
    return memory_of(device) // SHARE


def memory_of(device: torch.device) -> int:
    """Bytes of the device's memory; on Apple's GPUs it is the machine's own."""
    if device.type == "cuda":
        total: int = torch.cuda.get_device_properties(device).total_memory
        return total
    return machine_memory(CONTAINER)


def machine_memory(container: Path) -> int:
    """Bytes of the machine's memory, or of its container's if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = container.read_text().strip() if container.is_file() else "max"
    return min(machine, int(limit)) if limit.isdigit() else machine


def in_words(budget: int, token: int, context_length: int) -> str:
    """The budget, and what the longest text takes, of a model whose tokens take `token` bytes each."""
    holds = f"{budget / GIB:.1f} GiB" + (f", {budget // token:,} tokens" if budget else ": nothing is reused")
    whole = token * context_length / GIB
    return (
        f"keys and values are kept in {holds}; a context of {context_length:,} tokens takes {whole:.1f} GiB"
    )


def bytes_per_token(config: Mapping[str, Any], dtype: torch.dtype) -> int:
    """Bytes of the keys and values of one token; `config` is the text model's."""
    return kept_per_token(config) * dtype.itemsize
