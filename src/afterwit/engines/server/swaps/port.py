"""How new weights come into a server: what `ServerEngine` needs of either way."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from afterwit.engines.port import Weights
from afterwit.engines.server.swaps.lease import Lease


class Swap(Protocol):
    """`stage`, `probe`, `promote`, `discard` and `unload` are the port's."""

    @property
    def version(self) -> int:
        """The version that is live."""

    @property
    def label(self) -> str | None:
        """What the server must say of its weights; None: anything."""

    def live(self, adapter: str) -> int | None:
        """The port's `live`."""

    def lease(self, weights: Weights, adapter: str) -> AbstractContextManager[Lease]:
        """The weights that a response now begins with. EngineError if the server does not have them."""

    async def stage(self, version: int, folder: Path, adapter: str) -> None: ...

    async def probe(self, ids: Sequence[int], times: float) -> list[float]: ...

    async def promote(self) -> None: ...

    async def discard(self) -> None: ...

    async def unload(self, adapter: str) -> None: ...

    async def recover(self) -> None:
        """Bring the live weights back to a server that was away, and check that it serves them."""

    async def close(self) -> None:
        """End all leases, and leave nothing of ours on the server."""
