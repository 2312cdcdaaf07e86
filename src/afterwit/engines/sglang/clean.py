"""A version's folder as SGLang may read it: the server takes every *.safetensors of a folder for weights."""

from __future__ import annotations

import shutil
from pathlib import Path

from afterwit.checkpoints import STATE
from afterwit.core.errors import EngineError


class CleanFolders:
    """Folders of links, each beside a version's own, to all of its files but the learner's state."""

    def __init__(self) -> None:
        self._made: dict[str, Path] = {}

    def make(self, name: str, folder: Path) -> Path:
        """The folder to read in place of `folder`, known by `name` until it is removed.

        EngineError if it cannot be written.
        """
        source = folder.resolve()
        if not (source / STATE).exists():
            return source
        clean = source.parent / f".{source.name}-{name}"
        try:
            clean.mkdir(mode=0o700)
            self._made[name] = clean
            for path in source.iterdir():
                if path.name != STATE:
                    (clean / path.name).symlink_to(path)
        except OSError as error:
            raise EngineError(f"{clean} cannot be made for the server to read: {error}") from error
        return clean

    def remove(self, name: str) -> None:
        """The server has read it, or never will."""
        if (clean := self._made.pop(name, None)) is not None:
            shutil.rmtree(clean, ignore_errors=True)

    def remove_all(self) -> None:
        for name in list(self._made):
            self.remove(name)
