"""Files below one folder and nowhere else.

The agent sees the folder as `/work`; relative paths start there. A path is resolved, symbolic links included,
before it is used, and refused if it ends outside. Nothing here follows a link out of the folder.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

SEEN_AS = "/work"


class OutsideWorkspace(ValueError):
    """A path that ends outside the workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """One folder with its confined file operations; paths are the agent's, texts are UTF-8.

    Raises `OutsideWorkspace` for a path that leaves the folder and `OSError` as the file system does.
    """

    root: Path
    max_chars: int = 100_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", self.root.resolve(strict=True))

    def resolve(self, path: str) -> Path:
        """The real place of an agent's path."""
        if "\0" in path:
            raise OutsideWorkspace("a path cannot hold a NUL character")
        inside = path.removeprefix(SEEN_AS) if path == SEEN_AS or path.startswith(SEEN_AS + "/") else path
        relative = inside.lstrip("/") if inside is not path else inside
        place = Path(os.path.realpath(self.root / relative))
        if place != self.root and self.root not in place.parents:
            raise OutsideWorkspace(f"{path} is outside the workspace")
        return place

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        return self.resolve(path).exists()

    def read(self, path: str) -> str:
        """A file's text, cut at `max_chars`."""
        with self._regular(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(self.max_chars)

    def write(self, path: str, text: str) -> None:
        """Put a text in a file, made anew or replaced; folders on the way are made."""
        if len(text) > self.max_chars:
            raise OSError(f"text of {len(text)} characters, at most {self.max_chars} are allowed")
        place = self.resolve(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text that is in the file exactly once; raises `ValueError` otherwise."""
        text = self.read(path)
        found = text.count(old) if old else 0
        if found != 1:
            raise ValueError(f"{old!r} stands {found} times in {path}, not once")
        self.write(path, text.replace(old, new))

    def copy(self, path: str, to: str) -> None:
        """Copy one file to another place in the workspace."""
        source, target = self._regular(path), self.resolve(to)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)

    def delete(self, path: str) -> None:
        """Remove one file."""
        self._regular(path).unlink()

    def _regular(self, path: str) -> Path:
        place = self.resolve(path)
        if not place.exists():
            raise FileNotFoundError(f"no such file: {path}")
        if not place.is_file():
            raise OSError(f"not a file: {path}")
        return place
