"""Which rows go through a model together when they are packed. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from afterwit.tree.trie import Ids, shared

WORTH = 1.2
"""Packing pays from this many tokens of the rows per token that runs; below, branches cost more."""


def ratio(rows: Sequence[Ids]) -> float:
    """Tokens of the rows per token of their trie."""
    seen: list[Ids] = []
    new = sum(_add(seen, ids) for ids in rows)
    return sum(map(len, rows)) / new if new else 1.0


def groups(rows: Sequence[Ids], limit: int) -> list[list[int]]:
    """Indices of neighbouring rows to pack together: beside its longest row, at most `limit` tokens.

    The turns of a session that only grows count as one row, the longest.
    """
    found: list[list[int]] = []
    seen: list[Ids] = []
    total = longest = 0
    for index, ids in enumerate(rows):
        total += _add(seen, ids)
        longest = max(longest, len(ids))
        if found and total - longest <= limit:
            found[-1].append(index)
        else:
            found.append([index])
            seen, total, longest = [ids], len(ids), len(ids)
    return found


def _add(seen: list[Ids], ids: Ids) -> int:
    """Insert the row among the sorted ones; returns how many of its tokens are new."""
    at = bisect_left(seen, ids)
    common = max((shared(ids, other) for other in seen[max(0, at - 1) : at + 1]), default=0)
    seen.insert(at, ids)
    return len(ids) - common
