"""`store.url = "shelf:NAME"`: a SQLite store for each name, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

from afterwit.api.stores import Store, open_store

SHELF = Path.home() / ".afterwit-shelf"


class Shelf:
    """Opens stores by the part of the URL after `shelf:`."""

    def open(self, url: str, *, fingerprint: str | None, synchronous: str) -> Store:
        """Raises StoreMismatch if it holds turns of another model."""
        SHELF.mkdir(mode=0o700, exist_ok=True)
        return open_store(f"sqlite:{self._place(url)}", fingerprint=fingerprint, synchronous=synchronous)

    def exists(self, url: str) -> bool:
        return self._place(url).exists()

    def _place(self, url: str) -> Path:
        return SHELF / f"{url.removeprefix('shelf:')}.db"


KIND = Shelf()
