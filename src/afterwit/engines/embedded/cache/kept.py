"""The rows of running and of earlier requests, found again by what they begin with, dropped by age."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from afterwit.engines.embedded.cache.row import Row

WORTH = 16
"""Tokens that must be the same before anything is reused: reading so few costs one forward anyway."""
MOST = 256
"""Rows kept at most, so that looking through them stays cheap."""


class Found(NamedTuple):
    """A row, and how many tokens of a text's beginning it holds."""

    row: Row
    tokens: int


class KeptRows:
    """Rows by owner: one per set of weights. All owners share one budget of bytes.

    A row here holds keys and values of its owner's present weights only. Rows that requests run over are
    never dropped; if they alone are more than the budget, nothing else is kept.
    """

    def __init__(self, budget: int) -> None:
        """`budget` is in bytes; with 0 no row is ever found."""
        self._budget = budget
        self._owners: dict[Row, object] = {}
        """Least recently used first."""

    def __contains__(self, row: object) -> bool:
        return row in self._owners

    @property
    def nbytes(self) -> int:
        """Bytes of storage of all rows."""
        return sum(row.nbytes for row in self._owners)

    def holding(self, owner: object, ids: array[int]) -> Found | None:
        """The row that holds most of a text's beginning; None if none holds enough to be worth it.

        Of rows that hold as much, the youngest.
        """
        rows = [row for row, other in reversed(self._owners.items()) if other is owner]
        found = max((Found(row, row.holds(ids)) for row in rows), key=lambda one: one.tokens, default=None)
        return found if found is not None and found.tokens >= WORTH else None

    def add(self, owner: object, row: Row) -> None:
        """Enter a row that a request begins to read."""
        if self._budget:
            self._owners[row] = owner

    def use(self, row: Row) -> None:
        """A request runs over the row from now on: it is the youngest."""
        row.users += 1
        if row in self._owners:
            self._owners[row] = self._owners.pop(row)

    def leave(self, row: Row) -> None:
        """A request that ran over the row has ended. The row is the youngest again."""
        row.users -= 1
        if row in self._owners:
            self._owners[row] = self._owners.pop(row)
        self.make_room()

    def drop(self, row: Row) -> None:
        """Find the row no more."""
        self._owners.pop(row, None)

    def forget(self, owner: object) -> None:
        """Find no row of this owner any more: its weights have changed."""
        self._owners = {row: other for row, other in self._owners.items() if other is not owner}

    def has_room(self, tokens: int) -> bool:
        """Whether a row of this number of tokens can be added, if older ones are dropped."""
        in_use = sum(row.nbytes for row in self._owners if row.users)
        return in_use + self._bytes(tokens) <= self._budget

    def make_room(self, tokens: int = 0) -> None:
        """Drop the oldest rows that nobody uses until one of this number of tokens fits."""
        total, rows = self.nbytes + self._bytes(tokens), len(self._owners)
        for row in [row for row in self._owners if not row.users]:
            if total <= self._budget and rows <= MOST:
                return
            total, rows = total - row.nbytes, rows - 1
            del self._owners[row]

    def _bytes(self, tokens: int) -> float:
        """Storage of a row of this number of tokens; 0 before any row was read."""
        return tokens * max((row.bytes_per_position for row in self._owners), default=0.0)
