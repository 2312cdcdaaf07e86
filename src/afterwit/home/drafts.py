"""Drafts: folders that are written next to their place, then renamed into it whole or not at all."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = ".afterwit-"
"""Follows the place's name in that of its draft."""


@contextmanager
def draft_beside(place: Path) -> Iterator[Path]:
    """A folder on the disk of `place`, for its owner alone; removed at the end if it was not renamed.

    Drafts for the same place that killed processes left are removed first: they hold conversations. Raises
    OSError if it cannot be made.
    """
    parent, prefix = place.absolute().parent, f".{place.name}{MARK}"
    _remove_left(parent, prefix)
    folder, lock = _made(parent, prefix)
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _made(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new folder, and a handle that holds its lock. Tries again if another process removed it as a leftover
    before it was locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))  # mode 0700
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _remove_left(parent: Path, prefix: str) -> None:
    for left in parent.glob(f"{glob.escape(prefix)}*"):
        with suppress(OSError):
            lock = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)
            finally:
                os.close(lock)
