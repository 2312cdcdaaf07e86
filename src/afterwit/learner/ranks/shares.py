"""Who runs which piece of work. Pure: every rank computes all shares and takes its own."""

from __future__ import annotations

from collections.abc import Sequence


def shares(work: Sequence[int], size: int) -> list[list[int]]:
    """For each rank the pieces that it runs, by index and ascending; `work` is what each costs.

    The largest piece goes to the rank with the least so far: the last ends after at most 4/3 of the least
    possible time (Graham 1969, "Bounds on Multiprocessing Timing Anomalies").
    """
    loads, found = [0] * size, [list[int]() for _ in range(size)]
    for index in sorted(range(len(work)), key=lambda index: -work[index]):
        rank = min(range(size), key=lambda rank: (loads[rank], len(found[rank])))
        loads[rank] += work[index]
        found[rank].append(index)
    return [sorted(each) for each in found]
