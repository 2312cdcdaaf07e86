"""Copies of the whole store, as one moment knows it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Copying(Protocol):
    """Others go on reading and writing meanwhile. What they commit is in the copy whole or not at all."""

    def copy_to(self, path: Path) -> None:
        """For backups: write all that is stored into the new file `path`, which is a SQLite store.

        Raises StoreUnavailable if the disk has no room for it.
        """
        ...

    def copy_into(self, other: Copying) -> int:
        """Write all that is stored into another store, which is empty and may be of another kind; returns the
        number of turns.

        All of it is stored there, or nothing. Raises StoreError if the other holds anything already,
        StoreMismatch if it belongs to another model.
        """
        ...
