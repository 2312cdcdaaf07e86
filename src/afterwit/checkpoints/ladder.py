"""Which old versions keep their weights. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def is_rung(number: int, *, newest: int) -> bool:
    """Whether a version is a rung of the ladder: one at each doubling of the distance from the newest. An
    adapter's versions count from 1 here, whatever their numbers.

    A number with z trailing zero bits stays while it is less than 2^(z + 1) behind. So about log2(newest)
    versions stay, and from any distance d back to 3 d there is one, or the base.
    """
    return newest - number < 2 * (number & -number)


def outdated(numbers: Sequence[int], *, keep: int, but: Collection[int]) -> list[int]:
    """Of an adapter's ascending numbers, those neither among the newest `keep`, nor in `but`, nor a rung."""
    learned = [number for number in numbers if number > 0]
    older = enumerate(learned[: max(0, len(learned) - keep)], start=1)
    return [
        number for place, number in older if number not in but and not is_rung(place, newest=len(learned))
    ]
