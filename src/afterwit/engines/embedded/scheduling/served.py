"""What a response is sampled with: one object for all responses of an adapter, which changes at a swap."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.weights.rows import Factors


@dataclass(slots=True, eq=False)
class Served:
    """A version; keys and values that it read are found again under it."""

    version: int
    factors: Factors | None = None
    """What is added to the module; None: nothing."""
