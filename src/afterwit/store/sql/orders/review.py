"""The part of the port's `Control` that decides about turns and sessions, in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.core.lifecycle import Reason, State
from afterwit.store.records import Excluded, ReviewOutcome
from afterwit.store.sql.component import Component
from afterwit.store.sql.rows.codec import ACCEPTED, REFUSED
from afterwit.store.sql.rows.turn_state import COLUMNS, TurnState, move, turn_state_of

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
