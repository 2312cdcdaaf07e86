"""The kinds of store that Afterwit can open: one entry of a table for each URL scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.core.errors import SettingError

if TYPE_CHECKING:
    from afterwit.store import Store


def _sqlite(place: str, fingerprint: str | None, synchronous: str) -> Store:
    from afterwit.store.sqlite import SqliteStore

    return SqliteStore.open(Path(place), fingerprint=fingerprint, synchronous=synchronous)


STORES: Mapping[str, Callable[[str, str | None, str], Store]] = {"sqlite": _sqlite}
"""From what follows the scheme, the model's fingerprint and the durability to an open store."""


def open_store(url: str, *, fingerprint: str | None, synchronous: str) -> Store:
    """Open or create the store at `scheme:place`, bound to `fingerprint` (None: any model's).

    `synchronous` is the setting `store.synchronous`. Raises SettingError for an unknown scheme, StoreMismatch
    for a store of another model.
    """
    scheme, _, place = url.partition(":")
    if scheme not in STORES:
        raise SettingError(f"{url}: there is no store of the kind {scheme}; known: {', '.join(STORES)}")
    return STORES[scheme](place, fingerprint, synchronous)
