"""The port's `Statuses` in SQL."""

from __future__ import annotations

from afterwit.store.records import Status
from afterwit.store.sql.component import Component

KEPT_S = 7 * 86400.0
"""Seconds after which a machine that reports nothing of a stage is gone, once another reports it."""


class SqlStatuses(Component):
    """A row without a machine beside one with a name came with a copy of a store that was not shared."""

    def set_status(self, stage: str, ok: bool, message: str, *, now: float) -> None:
        with self._database.transaction():
            machine = self._database.machine
            row = {"stage": stage, "machine": machine, "ok": ok, "message": message, "at": now}
            self._database.put("statuses", row, key="stage, machine")
            self._database.execute(
                "DELETE FROM statuses WHERE stage = ? AND machine <> ?"
                " AND (at < ? OR machine = '' OR ? = '')",
                (stage, machine, now - KEPT_S, machine),
            )

    def statuses(self) -> list[Status]:
        rows = self._database.rows("SELECT * FROM statuses ORDER BY stage, machine")
        return [
            Status(stage=r["stage"], machine=r["machine"], ok=bool(r["ok"]), message=r["message"], at=r["at"])
            for r in rows
        ]
