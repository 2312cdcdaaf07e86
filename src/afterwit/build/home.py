"""What a home keeps: its store, its versions, and housekeeping over them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.config import Settings, StoreSettings, home_of, store_settings
from afterwit.errors import SettingError, StoreMismatch
from afterwit.home.home import STORE, VERSIONS, make_home, remembered_model, store_url
from afterwit.store.open import open_store, store_exists

if TYPE_CHECKING:
    from afterwit.checkpoints.remote import VersionsSettings
    from afterwit.checkpoints.versions import Versions
    from afterwit.housekeeping import Housekeeping
    from afterwit.store import AsyncStore, Store
    from afterwit.worker import Report


def store_of_model(settings: Settings, home: Path, folder: Path) -> Store:
    """The home's store, made if missing, bound to the model. StoreMismatch if it is another model's."""
    from afterwit.engines.fingerprint import fingerprint

    make_home(home)
    synchronous = settings.store.synchronous
    try:
        url = store_url(home, settings.store.url)
        return open_store(url, fingerprint=fingerprint(folder), synchronous=synchronous)
    except StoreMismatch as error:
        made_with = remembered_model(home)
        if made_with is None or Path(made_with) == folder.resolve():
            raise
        raise StoreMismatch(f"{error} It was made with {made_with}.") from error


@contextmanager
def store_of_home(home: Path | None, *, make: bool = False) -> Iterator[Store]:
    """The home's store, or that of `store.url`, for as long as a command runs; it may be any model's.

    With `make`, a new home gets an empty one; without, SettingError says how to get one.
    """
    folder = home_of(home)
    settings = store_settings(folder)
    url = store_url(folder, settings.url)
    if make:
        make_home(folder)
    elif not store_exists(url):
        place = "store.url" if settings.url else folder / STORE
        raise SettingError(
            f"there is no store at {place}: start `afterwit serve` first, or name another --home"
        )
    store = open_store(url, fingerprint=None, synchronous=settings.synchronous)
    try:
        yield store
    finally:
        store.close()


def store_at(url: str) -> Store:
    """The store at a URL, made if missing, whichever home it belongs to; it may be any model's."""
    return open_store(url, fingerprint=None, synchronous=StoreSettings().synchronous)


def async_store(store: Store) -> AsyncStore:
    """The store behind a thread of its own."""
    from afterwit.store import AsyncStore

    return AsyncStore(store)


def versions_of(home: Path, folder: Path, settings: VersionsSettings | None = None) -> Versions:
    """The home's folder of versions over the model, shared at `versions.url` if the settings name one.

    Without settings, those of the folder alone.
    """
    from afterwit.checkpoints.bucket import remote_of
    from afterwit.checkpoints.remote import VersionsSettings
    from afterwit.checkpoints.shared import SharedVersions
    from afterwit.checkpoints.versions import Versions

    found = settings or VersionsSettings()
    remote = remote_of(found)
    if remote is None:
        return Versions(root=home / VERSIONS, base=folder)
    every = found.state_every
    return SharedVersions(root=home / VERSIONS, base=folder, remote=remote, state_every=every)


def housekeeping_of(settings: Settings, home: Path, store: AsyncStore, report: Report) -> Housekeeping:
    """Housekeeping over the store."""
    from afterwit.housekeeping import Housekeeping, RetentionLimits
    from afterwit.promotion.watch import WatchOver

    kept = settings.store
    retention = RetentionLimits(
        next_state_s=kept.next_state_hours * 3600,
        max_age_s=kept.keep_days * 86400,
        max_bytes=int(kept.keep_gb * 1e9),
    )
    watch = WatchOver(settings.promotion)
    return Housekeeping(store, home, retention, report=report, now=time.time, sweep=watch.sweep)


def worker_name(stage: str) -> str:
    """Who holds a lease: one name a process."""
    return f"{stage}-{os.uname().nodename}-{os.getpid()}"
