"""The kinds of store that Afterwit can open: one entry of a table for each URL scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.errors import SettingError

if TYPE_CHECKING:
    from afterwit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of store. Both take the URL."""

    open: Callable[[str, str | None, str], Store]
    """From the URL, the model's fingerprint and the durability to an open store."""
    exists: Callable[[str], bool]


def _open_sqlite(url: str, fingerprint: str | None, synchronous: str) -> Store:
    from afterwit.store.sqlite import SqliteStore

    return SqliteStore.open(_path(url), fingerprint=fingerprint, synchronous=synchronous)


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:"))


def _open_postgresql(url: str, fingerprint: str | None, synchronous: str) -> Store:
    from afterwit.store.postgresql.store import PostgresqlStore

    return PostgresqlStore.open(url, fingerprint=fingerprint)


def _postgresql_exists(url: str) -> bool:
    from afterwit.store.postgresql.store import PostgresqlStore

    return PostgresqlStore.exists(url)


POSTGRESQL = Kind(open=_open_postgresql, exists=_postgresql_exists)


STORES: Mapping[str, Kind] = {
    "sqlite": Kind(open=_open_sqlite, exists=lambda url: _path(url).exists()),
    "postgresql": POSTGRESQL,
    "postgres": POSTGRESQL,
}


def open_store(url: str, *, fingerprint: str | None, synchronous: str) -> Store:
    """Open or create the store at `scheme:place`, bound to `fingerprint` (None: any model's).

    `synchronous` is the setting `store.synchronous`. Raises SettingError for an unknown scheme, StoreMismatch
    for a store of another model.
    """
    return _kind(url).open(url, fingerprint, synchronous)


def store_exists(url: str) -> bool:
    """Whether there is a store at `scheme:place`. Raises SettingError for an unknown scheme."""
    return _kind(url).exists(url)


def _kind(url: str) -> Kind:
    scheme = url.partition(":")[0]
    if scheme not in STORES:
        raise SettingError(f"store.url: there is no store of the kind {scheme}; known: {', '.join(STORES)}")
    return STORES[scheme]
