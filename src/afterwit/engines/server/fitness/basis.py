"""Which distribution a server's log-probs are of, found out at two temperatures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from afterwit.core.turn import Basis

HOT, COLD = 1.0, 0.5
TOP = 5
"""Ids whose log-probs are compared."""


async def basis_of(top_at: Callable[[float], Awaitable[list[float]]]) -> Basis:
    """Whether log-probs change with the temperature: at half of it, processed ones lie twice as far apart.

    `top_at` gives the log-probs of the likeliest ids at a temperature.
    """
    hot, cold = [max(values) - min(values) for values in (await top_at(HOT), await top_at(COLD))]
    return Basis.PROCESSED if cold > 1.5 * hot else Basis.RAW
