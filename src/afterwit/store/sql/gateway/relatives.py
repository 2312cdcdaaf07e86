"""What every look-up asks of a turn's relatives and shape."""

from __future__ import annotations

from functools import lru_cache

from afterwit.core.binding import Shape
from afterwit.store.sql.database import Row

CHILDREN = "EXISTS (SELECT 1 FROM turns child WHERE child.parent = t.id AND child.kind <> 'side')"
"""Whether the turn that a query calls `t` has any."""


def shape_of(row: Row) -> Shape | None:
    return None if row["shape"] is None else read_shape(row["shape"])


@lru_cache(maxsize=256)
def read_shape(line: str) -> Shape:
    """Read once: the turns of a session are nearly all made alike."""
    return Shape.read(line)
