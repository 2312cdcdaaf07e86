"""The port's `Control` in SQL: rows of `meta`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import orjson

from afterwit.store.records import Pause
from afterwit.store.sql.component import Component
from afterwit.store.sql.database import LAST_CHARACTER

PAUSED = "paused"
PAUSED_ADAPTER = "paused adapter:{}"
ADAPTERS = "(key > ? AND key < ?)"
BETWEEN = (PAUSED_ADAPTER.format(""), PAUSED_ADAPTER.format(LAST_CHARACTER))
NOTE = "note:{}"


class SqlControl(Component):
    def pause(self, words: str, *, now: float, adapter: str | None = None) -> Pause:
        with self._database.alone():
            held = self.paused() if adapter is None else self.paused_adapters().get(adapter)
            pause = replace(held or Pause(since=now, words=words), words=words)
            key = PAUSED if adapter is None else PAUSED_ADAPTER.format(adapter)
            self._set(key, orjson.dumps(pause).decode())
        return pause

    def resume(self) -> Pause | None:
        with self._database.alone():
            held = [*filter(None, (self.paused(),)), *self.paused_adapters().values()]
            self._database.execute(f"DELETE FROM meta WHERE key = ? OR {ADAPTERS}", (PAUSED, *BETWEEN))
        return held[0] if held else None

    def paused(self) -> Pause | None:
        text = self._get(PAUSED)
        return None if text is None else Pause(**orjson.loads(text))

    def paused_adapters(self) -> Mapping[str, Pause]:
        rows = self._database.rows(f"SELECT key, value FROM meta WHERE {ADAPTERS}", BETWEEN)
        return {
            row["key"].removeprefix(PAUSED_ADAPTER.format("")): Pause(**orjson.loads(row["value"]))
            for row in rows
        }

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
