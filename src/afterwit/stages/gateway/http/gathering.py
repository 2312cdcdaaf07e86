"""A transport whose writes of one round of the event loop leave together."""

from __future__ import annotations

import asyncio
from typing import Any

MOST_BYTES = 32 * 1024
"""That wait; more leave at once, so that a client which does not read is noticed as early as without this."""


class GatheringTransport(asyncio.Transport):
    """Each write of a socket is a call of the system, and takes as long as the gateway's own work on a token.

    So the head and the body of an answer, and tokens that are there together, are written by one.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._waiting: list[bytes] = []
        self._bytes = 0

    def write(self, data: Any) -> None:
        """Written when those who run now have had their turn. `data` must not change until then."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if waiting and not self._transport.is_closing():
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    def close(self) -> None:
        """Close once all is sent."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close now; what was not sent is lost."""
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._bytes + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
