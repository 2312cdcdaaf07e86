"""What every component of the store holds."""

from __future__ import annotations

from afterwit.store.sql.database import Database


class Component:
    """One protocol of the port, over the connection that all components share."""

    def __init__(self, database: Database) -> None:
        self._database = database
