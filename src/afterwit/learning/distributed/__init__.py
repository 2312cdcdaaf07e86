"""A learner of several processes, and this process's place among them. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from afterwit.errors import SettingError

SAID = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One process of several, and its place on its machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """None unless torchrun, or what does as it does, started this process as one of several.

        SettingError if a number is none.
        """
        if not all(name in environment for name in SAID):
            return None
        try:
            rank, size, local_rank, local_size = (int(environment[name]) for name in SAID[:4])
        except ValueError as error:
            raise SettingError(f"the environment's {', '.join(SAID[:4])} are not numbers: {error}") from error
        return cls(rank=rank, size=size, local_rank=local_rank, local_size=local_size) if size > 1 else None
