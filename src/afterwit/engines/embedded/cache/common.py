"""How far two texts are the same. Pure."""

from __future__ import annotations

from array import array


def common_prefix(one: array[int], other: array[int]) -> int:
    """How many ids both begin with."""
    same, differ = 0, min(len(one), len(other))
    if one[:differ] == other[:differ]:
        return differ
    while differ - same > 1:
        middle = (same + differ) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            differ = middle
    return same
