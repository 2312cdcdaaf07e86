"""A home's turns from one kind of store to the other."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from afterwit.apps.build import store_at
from afterwit.apps.home import store_url
from afterwit.apps.keeping.restore import refuse_running
from afterwit.apps.stores import store_exists
from afterwit.core.errors import SettingError

HOME = "home"
"""Stands for the file in the home."""


def copy_store(home: Path, configured: str | None, *, source: str | None, target: str) -> int:
    """Copy all that the store at `source` holds (None: the home's own, at `configured` or in it) to `target`.

    Both are URLs, or `home`. Returns the number of turns. Raises AlreadyRunning if something runs over the
    home, SettingError if there is nothing to copy; StoreError if the target holds anything.
    """
    here = _url(home, source) if source else store_url(home, configured)
    there = _url(home, target)
    if here == there:
        raise SettingError("the turns are there already: it is the store that is copied")
    if not store_exists(here):
        raise SettingError(f"there is no store to copy at {'store.url' if here == configured else here}")
    refuse_running(home, "its newest turns would be missing from the copy")
    with closing(store_at(here)) as old, closing(store_at(there)) as new:
        return old.copy_into(new)


def _url(home: Path, said: str) -> str:
    return store_url(home) if said == HOME else said
