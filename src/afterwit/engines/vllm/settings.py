"""The settings of the vLLM engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from afterwit.engines.server.settings import ServerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings(ServerSettings):
    """A vLLM server, which runs already or is started by `afterwit up`."""

    kind: Literal["vllm"] = "vllm"
    """vllm: the model runs in a vLLM server, this process needs no torch."""
    command: tuple[str, ...] = ("vllm",)
    """The program that `afterwit up` starts, such as `["/opt/vllm/bin/vllm"]`."""
