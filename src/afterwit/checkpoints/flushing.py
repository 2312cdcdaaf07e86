"""Files that are on the disk before a name says that they are there."""

from __future__ import annotations

import os
from pathlib import Path

from afterwit.checkpoints import manifest


def draft(folder: Path, text: str) -> Path:
    """Flush every file of the folder to the disk, and the manifest under another name, which is returned."""
    for path in folder.iterdir():
        sync(path)
    found = folder / manifest.DRAFT
    found.write_text(text)
    sync(found)
    sync(folder)
    sync(folder.parent)
    return found


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
