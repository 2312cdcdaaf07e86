"""The settings of the SGLang engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from afterwit.engines.server.settings import ServerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangSettings(ServerSettings):
    """An SGLang server, which runs already or is started by `afterwit up`."""

    kind: Literal["sglang"] = "sglang"
    """sglang: the model runs in an SGLang server, this process needs no torch."""
    url: str | tuple[str, ...] = "http://127.0.0.1:30000"
    """Where the server answers, without `/v1`; a list: several servers of one model, behind one gateway."""
    command: tuple[str, ...] = ("python3", "-m", "sglang.launch_server")
    """The program that `afterwit up` starts, such as
    `["/opt/sglang/bin/python", "-m", "sglang.launch_server"]`."""
