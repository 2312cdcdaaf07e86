"""What every part of the store holds."""

from __future__ import annotations

from afterwit.store.sqlite.database import Database


class Component:
    """One concern of the store, over the connection that all of them share."""

    def __init__(self, database: Database) -> None:
        self._database = database
