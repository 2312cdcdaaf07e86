"""How much of an update one source gives. Pure."""

from __future__ import annotations

import math


def largest_share(size: int, *, sources: int, share: float) -> int:
    """The most turns of one source in an update of `size` turns, if `sources` of them have turns that wait.

    `share` of the update, or an equal part if that is more: two sources fill it together. All of it if there
    is one source.
    """
    if size < 1 or sources < 1:
        raise ValueError(f"an update of {size} turns of {sources} sources")
    return max(math.ceil(size * share), math.ceil(size / sources))
