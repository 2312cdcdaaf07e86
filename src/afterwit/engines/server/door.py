"""A door that requests pass: closed while the server is away or takes new weights."""

from __future__ import annotations

import asyncio

from afterwit.core.errors import EngineUnavailable


class Door:
    """Open at first. Each who closes it has a reason of their own, and it is open once none has one."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._changed = asyncio.Event()

    @property
    def reason(self) -> str | None:
        """Why it is closed; None while it is open."""
        return next(iter(self._reasons.values()), None)

    def closed_by(self, who: str) -> bool:
        """Whether it is closed for a reason of theirs."""
        return who in self._reasons

    def close(self, who: str, reason: str) -> None:
        """Let nobody through; replaces the reason that they had."""
        self._reasons[who] = reason

    def open(self, who: str) -> None:
        """Take their reason away."""
        self._reasons.pop(who, None)
        if not self._reasons:
            self._changed.set()
            self._changed = asyncio.Event()

    async def passed(self, patience_s: float) -> None:
        """Wait until it is open. EngineUnavailable with the reason after `patience_s` seconds."""
        try:
            async with asyncio.timeout(patience_s):
                while self._reasons:
                    await self._changed.wait()
        except TimeoutError as error:
            raise EngineUnavailable(f"{self.reason} (a request waited {patience_s:g} s)") from error
