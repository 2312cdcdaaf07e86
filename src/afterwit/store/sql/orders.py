"""The port's `Control` in SQL: rows of `meta`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson

from afterwit.lifecycle import Reason, State
from afterwit.store.records import Excluded, ForgetOrder, Pause, ReviewOutcome
from afterwit.store.sql.database import LAST_CHARACTER, Component, Database, marks
from afterwit.store.sql.growing import detach
from afterwit.store.sql.rows import ACCEPTED, REFUSED
from afterwit.store.sql.turn_state import COLUMNS, TurnState, move, turn_state_of
from afterwit.store.sql.upkeep import BATCH, CONTENT_TABLES

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


TRAINS = """
    SELECT v.revision = t.revision AND (v.rl = 1 OR v.opd = 1) AS trains FROM turns t
    JOIN contents USING (seq) JOIN verdicts v USING (seq) WHERE t.seq = ?
"""
"""Whether a turn has a verdict on its newest next state, with a term of the loss."""


class SqlReview(Component):
    def review(self, turns: Sequence[str], *, accept: bool, now: float) -> dict[str, ReviewOutcome]:
        with self._database.transaction():
            found = [turn_state_of(self._database, turn) for turn in turns]
            return {current.id: self._review(current, accept, now) for current in found}

    def _review(self, current: TurnState, accept: bool, now: float) -> ReviewOutcome:
        refused = current.reason is Reason.REVIEW_REFUSED
        if current.state is State.TRAINED:
            return ReviewOutcome.TRAINED
        if not self._trains(current) or not (current.state is State.JUDGED or refused):
            return ReviewOutcome.NOT_WAITING
        if current.leased(now):
            return ReviewOutcome.IN_UPDATE
        self._database.execute(
            "UPDATE verdicts SET review = ? WHERE seq = ?", (ACCEPTED if accept else REFUSED, current.seq)
        )
        if accept and refused:
            move(self._database, current, State.JUDGED, now=now)
        elif not accept and not refused:
            move(self._database, current, State.SKIPPED, now=now, reason=Reason.REVIEW_REFUSED)
        return ReviewOutcome.ACCEPTED if accept else ReviewOutcome.REFUSED

    def _trains(self, current: TurnState) -> bool:
        row = self._database.row(TRAINS, (current.seq,))
        return row is not None and bool(row["trains"])

    def exclude(self, session: str, *, now: float) -> Excluded:
        with self._database.alone():
            self._database.execute(
                "INSERT INTO excluded VALUES (?, ?) ON CONFLICT DO NOTHING", (session, now)
            )
            rows = self._database.rows(
                f"SELECT {COLUMNS} FROM turns WHERE session = ? ORDER BY seq", (session,)
            )
            found = [TurnState.of(row) for row in rows]
            training = [each for each in found if each.state is State.JUDGED and each.leased(now)]
            waits = [
                each
                for each in found
                if each.state not in (State.TRAINED, State.SKIPPED) and each not in training
            ]
            for current in waits:
                move(self._database, current, State.SKIPPED, now=now, reason=Reason.EXCLUDED)
            self._database.execute(
                "UPDATE turns SET reason = ? WHERE session = ? AND state = 'SKIPPED'"
                " AND reason NOT IN (?, ?)",
                (Reason.EXCLUDED, session, Reason.REVERTED, Reason.FORGOTTEN),
            )
            trained = self._database.rows(
                "SELECT DISTINCT version FROM trained JOIN turns t ON t.id = trained.turn"
                " WHERE t.session = ? AND t.state = 'TRAINED' ORDER BY version",
                (session,),
            )
        return Excluded(
            ended=len(waits), trained=tuple(row["version"] for row in trained), in_update=len(training)
        )

    def include(self, session: str) -> bool:
        with self._database.alone():
            known = self._database.execute("DELETE FROM excluded WHERE session = ?", (session,))
        return known > 0

    def excluded(self) -> frozenset[str]:
        return frozenset(row["session"] for row in self._database.rows("SELECT session FROM excluded"))


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
