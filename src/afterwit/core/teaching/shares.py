"""How much of an update one source gives. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar


class FromSource(Protocol):
    """A turn whose source is known."""

    @property
    def source(self) -> str:
        """Whose it is."""


Sourced = TypeVar("Sourced", bound=FromSource)


def within_limit(waiting: Sequence[Sourced], *, used: Mapping[str, int], limit: int) -> list[Sourced]:
    """The waiting turns, in their order, of each source at most `limit` less what it `used`; 0: no limit."""
    if not limit:
        return list(waiting)
    given = Counter(used)
    kept = []
    for turn in waiting:
        given[turn.source] += 1
        if given[turn.source] <= limit:
            kept.append(turn)
    return kept


def largest_share(size: int, *, sources: int, share: float) -> int:
    """The most turns of one source in an update of `size` turns, if `sources` of them have turns that wait.

    `share` of the update, or an equal part if that is more: two sources fill it together. All of it if there
    is one source.
    """
    if size < 1 or sources < 1:
        raise ValueError(f"an update of {size} turns of {sources} sources")
    return max(math.ceil(size * share), math.ceil(size / sources))
