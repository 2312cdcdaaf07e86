"""The files of a box's working folder, and of no other: a path that ends elsewhere is refused."""

from __future__ import annotations

import os
import stat
from typing import Any

SEEN_AS = "/work"


class Files:
    """Files below `root`, which commands know as `/work`. Nothing runs while these work."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    def read(self, path: str, most: int) -> dict[str, Any]:
        """A file's text; OSError if it is longer than `most` bytes or no regular file."""
        place = self._resolve(path)
        if not os.path.exists(place):
            raise OSError(f"no such file: {path}")
        if not stat.S_ISREG(os.stat(place).st_mode):
            raise OSError(f"not a file: {path}")
        with open(place, "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise OSError(f"{path} has more than {most} bytes")
        return {"text": data.decode("utf-8", "replace")}

    def write(self, path: str, text: str) -> dict[str, Any]:
        """Put a text in a file, made anew or replaced; folders on the way are made."""
        place = self._resolve(path)
        if os.path.lexists(place) and not stat.S_ISREG(os.lstat(place).st_mode):
            raise OSError(f"not a file: {path}")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        return {}

    def _resolve(self, path: str) -> str:
        if "\0" in path:
            raise ValueError("a path cannot hold a NUL character")
        if path == SEEN_AS or path.startswith(SEEN_AS + "/"):
            path = path[len(SEEN_AS) :].lstrip("/")
        place = os.path.realpath(os.path.join(self._root, path))
        if os.path.commonpath((place, self._root)) != self._root:
            raise ValueError(f"{path} is outside the workspace")
        return place
