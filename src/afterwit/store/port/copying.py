"""A copy of the whole store, as one moment knows it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Copying(Protocol):
    """For backups. Others go on reading and writing meanwhile."""

    def copy_to(self, path: Path) -> None:
        """Write all that is stored into the new file `path`, which the same kind of store opens.

        What other processes commit while it runs is in the copy whole or not at all. Raises StoreUnavailable
        if the disk has no room for it.
        """
        ...
