"""The port's `Forgetting` in SQL: orders are rows of `meta`."""

from __future__ import annotations

from dataclasses import replace

import orjson

from afterwit.core.lifecycle import Reason, State
from afterwit.store.records import ForgetOrder
from afterwit.store.sql.component import Component
from afterwit.store.sql.database import LAST_CHARACTER, Database, marks
from afterwit.store.sql.rows.growing import detach
from afterwit.store.sql.rows.turn_state import move, turn_state_of
from afterwit.store.sql.upkeep.retention import BATCH, CONTENT_TABLES

ORDER = "forget:{}"


class SqlForgetting(Component):
    def order_forgetting(self, session: str, *, replay: bool, now: float) -> None:
        with self._database.transaction():
            self._write_order(ForgetOrder(session=session, replay=replay, at=now, error=None))

    def forget_orders(self) -> list[ForgetOrder]:
        rows = self._database.rows(
            "SELECT value FROM meta WHERE key > ? AND key < ?",
            (ORDER.format(""), ORDER.format(LAST_CHARACTER)),
        )
        orders = [ForgetOrder(**orjson.loads(row["value"])) for row in rows]
        return sorted(orders, key=lambda order: (order.at, order.session))

    def forgetting_failed(self, session: str, error: str) -> None:
        with self._database.alone():
            for order in self.forget_orders():
                if order.session == session:
                    self._write_order(replace(order, error=error))

    def cancel_forgetting(self, session: str) -> None:
        with self._database.transaction():
            self._database.execute("DELETE FROM meta WHERE key = ?", (ORDER.format(session),))

    def _write_order(self, order: ForgetOrder) -> None:
        row = {"key": ORDER.format(order.session), "value": orjson.dumps(order).decode()}
        self._database.put("meta", row, key="key")

    def sessions_of(self, adapter: str) -> tuple[str, ...]:
        rows = self._database.rows(
            "SELECT session, min(seq) AS first FROM turns WHERE adapter = ? AND coalesce(reason, '') <> ?"
            " GROUP BY session ORDER BY first",
            (adapter, Reason.FORGOTTEN),
        )
        return tuple(row["session"] for row in rows)

    def turn_ids(self, session: str) -> tuple[str, ...]:
        rows = self._database.rows("SELECT id FROM turns WHERE session = ? ORDER BY seq", (session,))
        return tuple(row["id"] for row in rows)

    def forget(self, session: str, *, now: float) -> int:
        with self._database.alone():
            found = forget_session(self._database, session, now=now)
        self._database.wipe()
        return found


def forget_session(database: Database, session: str, *, now: float) -> int:
    """Within a transaction: `Forgetting.forget`."""
    rows = database.rows("SELECT seq, id FROM turns WHERE session = ? ORDER BY seq", (session,))
    held = sum(
        _delete(database, [row["seq"] for row in rows[start : start + BATCH]])
        for start in range(0, len(rows), BATCH)
    )
    for row in rows:
        current = turn_state_of(database, row["id"])
        if current.state is not State.SKIPPED:
            move(database, current, State.SKIPPED, now=now, reason=Reason.FORGOTTEN)
        database.execute("UPDATE trained SET effect = NULL WHERE turn = ?", (row["id"],))
    database.execute(
        "UPDATE turns SET reason = ?, error = NULL, client_session = NULL, prompt_hash = ?,"
        " full_hash = ? WHERE session = ?",
        (Reason.FORGOTTEN, b"", b"", session),
    )
    for table in ("suite", "episodes"):
        database.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
    database.execute("DELETE FROM meta WHERE key = ?", (ORDER.format(session),))
    return held


def _delete(database: Database, seqs: list[int]) -> int:
    """Delete the content of these turns; returns how many had any."""
    here = marks(len(seqs))
    ((held,),) = database.rows(f"SELECT count(*) FROM contents WHERE seq IN ({here})", seqs)
    detach(database, seqs)
    for table in CONTENT_TABLES:
        database.execute(f"DELETE FROM {table} WHERE seq IN ({here})", seqs)
    return int(held)
