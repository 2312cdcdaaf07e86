"""How far an update has come. The learn stage renews its leases by it, and tests watch it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Phase(StrEnum):
    """In the order in which an update passes them; SCORING and STEPPED come once per pass and per epoch."""

    CLAIMED = "claimed"
    SCORING = "scoring"
    STEPPED = "stepped"
    WRITING = "writing"
    """The weights are on disk, the optimiser's state and the manifest are not."""
    WRITTEN = "written"
    """The manifest is in place: the update has happened, the store does not know it yet."""
    COMMITTED = "committed"


Progress = Callable[[Phase], None]
