"""The store, where the stages meet. `AsyncStore` runs one in a thread of its own, for an event loop.

Below are the databases that Afterwit can open: one entry of a table for each URL scheme.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from afterwit import plugins
from afterwit.errors import SettingError
from afterwit.store.browsing import Counts, summary, whole
from afterwit.store.reading import Filter, Record
from afterwit.store.recording import ParentLookup
from afterwit.store.store import AsyncStore, Store
from afterwit.store.upkeep import Excluded, ForgetOrder, Key, Pause, ReviewOutcome, Status
from afterwit.store.work import LearnedTurn, VersionRecord

__all__ = [
    "AsyncStore",
    "Counts",
    "Excluded",
    "Filter",
    "ForgetOrder",
    "Key",
    "LearnedTurn",
    "ParentLookup",
    "Pause",
    "Record",
    "ReviewOutcome",
    "Status",
    "Store",
    "VersionRecord",
    "open_store",
    "store_exists",
    "summary",
    "whole",
]


@runtime_checkable
class StoreKind(Protocol):
    """A kind of store. Drivers are imported when a store is opened, so that commands start without them."""

    def open(self, url: str, *, fingerprint: str | None, synchronous: str) -> Store: ...

    def exists(self, url: str) -> bool: ...


class Sqlite:
    """`sqlite:PATH`."""

    def open(self, url: str, *, fingerprint: str | None, synchronous: str) -> Store:
        from afterwit.store.sqlite import SqliteStore

        path = Path(url.removeprefix("sqlite:"))
        return SqliteStore.open(path, fingerprint=fingerprint, synchronous=synchronous)

    def exists(self, url: str) -> bool:
        return Path(url.removeprefix("sqlite:")).exists()


class Postgresql:
    """`postgresql://...`, as libpq reads it."""

    def open(self, url: str, *, fingerprint: str | None, synchronous: str) -> Store:
        from afterwit.store.postgresql import PostgresqlStore

        return PostgresqlStore.open(url, fingerprint=fingerprint)

    def exists(self, url: str) -> bool:
        from afterwit.store.postgresql import PostgresqlStore

        return PostgresqlStore.exists(url)


STORES = plugins.Table[StoreKind](
    plugins.STORES,
    StoreKind,
    {"sqlite": Sqlite(), "postgresql": Postgresql(), "postgres": Postgresql()},
)


def open_store(url: str, *, fingerprint: str | None, synchronous: str) -> Store:
    """Open or create the store at `scheme:place`, bound to `fingerprint` (None: any model's).

    `synchronous` is the setting `store.synchronous`. Raises SettingError for an unknown scheme, StoreMismatch
    for a store of another model.
    """
    store: object = _kind(url).open(url, fingerprint=fingerprint, synchronous=synchronous)
    if not isinstance(store, Store):
        raise SettingError(f"store.url: {url.partition(':')[0]} opened no Store, but {type(store).__name__}")
    return store


def store_exists(url: str) -> bool:
    """Whether there is a store at `scheme:place`. Raises SettingError for an unknown scheme."""
    return _kind(url).exists(url)


def _kind(url: str) -> StoreKind:
    scheme = url.partition(":")[0]
    if scheme not in STORES:
        raise SettingError(f"store.url: there is no store of the kind {scheme}; known: {', '.join(STORES)}")
    return STORES[scheme]
