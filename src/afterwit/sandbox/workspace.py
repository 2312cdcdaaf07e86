"""Files below one folder of the machine, which an agent knows as `/work`. Links out of it are refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from afterwit.sandbox.inside.files import Files


class Workspace(Files):
    """One folder with its file operations; paths are the agent's, texts are UTF-8.

    Raises `OutsideWorkspace` for a path that leaves the folder, and `OSError` as the file system does.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.root = root.resolve(strict=True)

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        return os.path.exists(self.resolve(path))

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text that is in the file exactly once; raises `ValueError` otherwise."""
        text = self.read(path)
        found = text.count(old) if old else 0
        if found != 1:
            raise ValueError(f"{old!r} stands {found} times in {path}, not once")
        self.write(path, text.replace(old, new))

    def copy(self, path: str, to: str) -> None:
        """Copy one file to another place in the workspace."""
        source, target = self.regular(path), self.resolve(to)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)

    def delete(self, path: str) -> None:
        """Remove one file."""
        os.unlink(self.regular(path))
