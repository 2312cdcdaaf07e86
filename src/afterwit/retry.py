"""Retries with exponential back-off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from afterwit.errors import EngineUnavailable, JudgeUnavailable

DOUBLINGS = 30

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """How long to wait after a number of failures in a row: doubling, bounded, with jitter."""

    base_s: float
    max_s: float
    random: Callable[[], float]
    """Uniform in [0, 1)."""

    def after(self, failures: int) -> float:
        """Seconds: between half and the whole of base_s * 2 ** (failures - 1), at most max_s."""
        whole = min(self.max_s, self.base_s * 2.0 ** min(failures - 1, DOUBLINGS))
        return whole * (0.5 + 0.5 * self.random())


async def retrying(
    call: Callable[[], Awaitable[T]],
    *,
    attempts: int,
    back_off: BackOff,
    sleep: Callable[[float], Awaitable[object]],
    on: type[JudgeUnavailable | EngineUnavailable] = JudgeUnavailable,
) -> T:
    """The call's result, or its error `on` after `attempts` tries. Respects a judge's Retry-After."""
    for failures in range(1, attempts):
        try:
            return await call()
        except on as error:
            pause = error.retry_after_s if isinstance(error, JudgeUnavailable) else None
            asked = min(pause or 0.0, back_off.max_s)
            await sleep(max(asked, back_off.after(failures)))
    return await call()
