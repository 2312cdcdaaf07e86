"""The files of a working folder, and of no other: a path that ends elsewhere is refused."""

from __future__ import annotations

import os
import stat

SEEN_AS = "/work"
MOST_READ = 1 << 20
"""Bytes of a file that is read."""


class OutsideWorkspace(ValueError):
    """A path that ends outside the working folder."""


class Files:
    """Files below `root`, which commands know as `/work`. No command runs meanwhile."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    def read(self, path: str, most: int = MOST_READ) -> str:
        """A file's text; OSError if it is longer than `most` bytes or no regular file."""
        with open(self.regular(path), "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise OSError(f"{path} has more than {most} bytes")
        return data.decode("utf-8", "replace")

    def write(self, path: str, text: str) -> None:
        """Write a text to a new or existing file; missing folders are made."""
        place = self.resolve(path)
        if os.path.lexists(place) and not stat.S_ISREG(os.lstat(place).st_mode):
            raise OSError(f"not a file: {path}")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(text.encode("utf-8", "replace"))

    def regular(self, path: str) -> str:
        """The real place of an existing file; OSError if there is none."""
        place = self.resolve(path)
        if not os.path.exists(place):
            raise FileNotFoundError(f"no such file: {path}")
        if not stat.S_ISREG(os.stat(place).st_mode):
            raise OSError(f"not a file: {path}")
        return place

    def resolve(self, path: str) -> str:
        """The real place of a path, symbolic links resolved."""
        if "\0" in path:
            raise OutsideWorkspace("a path cannot hold a NUL character")
        if path == SEEN_AS or path.startswith(SEEN_AS + "/"):
            path = path[len(SEEN_AS) :].lstrip("/")
        place = os.path.realpath(os.path.join(self._root, path))
        if os.path.commonpath((place, self._root)) != self._root:
            raise OutsideWorkspace(f"{path} is outside the workspace")
        return place
