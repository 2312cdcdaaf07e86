"""The port's `Copying` over SQLite's online backup."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from afterwit.store.sqlite.component import Component
from afterwit.store.sqlite.database import in_plain_words


class SqliteCopying(Component):
    def copy_to(self, path: Path) -> None:
        path.touch(mode=0o600)
        try:
            with closing(sqlite3.connect(path)) as copy:
                self._database.copy_into(copy)
        except sqlite3.Error as error:
            raise in_plain_words(error, path) from error
