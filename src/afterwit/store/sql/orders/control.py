"""The port's `Control` in SQL: rows of `meta`."""

from __future__ import annotations

from dataclasses import replace

import orjson

from afterwit.store.records import Pause
from afterwit.store.sql.component import Component

PAUSED = "paused"
NOTE = "note:{}"


class SqlControl(Component):
    def pause(self, words: str, *, now: float) -> Pause:
        with self._database.alone():
            pause = replace(self.paused() or Pause(since=now, words=words), words=words)
            self._set(PAUSED, orjson.dumps(pause).decode())
        return pause

    def resume(self) -> Pause | None:
        with self._database.alone():
            pause = self.paused()
            self._database.execute("DELETE FROM meta WHERE key = ?", (PAUSED,))
        return pause

    def paused(self) -> Pause | None:
        text = self._get(PAUSED)
        return None if text is None else Pause(**orjson.loads(text))

    def set_note(self, name: str, text: str) -> None:
        with self._database.transaction():
            self._set(NOTE.format(name), text)

    def note(self, name: str) -> str | None:
        return self._get(NOTE.format(name))

    def _set(self, key: str, value: str) -> None:
        self._database.put("meta", {"key": key, "value": value}, key="key")

    def _get(self, key: str) -> str | None:
        row = self._database.row("SELECT value FROM meta WHERE key = ?", (key,))
        return None if row is None else str(row["value"])
