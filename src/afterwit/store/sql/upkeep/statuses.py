"""The port's `Statuses` in SQL."""

from __future__ import annotations

from afterwit.store.records import Status
from afterwit.store.sql.component import Component


class SqlStatuses(Component):
    def set_status(self, stage: str, ok: bool, message: str, *, now: float) -> None:
        with self._database.transaction():
            row = {"stage": stage, "ok": ok, "message": message, "at": now}
            self._database.put("statuses", row, key="stage")

    def statuses(self) -> list[Status]:
        rows = self._database.rows("SELECT * FROM statuses ORDER BY stage")
        return [Status(stage=r["stage"], ok=bool(r["ok"]), message=r["message"], at=r["at"]) for r in rows]
