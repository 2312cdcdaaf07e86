"""People's orders: pause, review, exclude, forget. An order holds until it is withdrawn or carried out,
across restarts and for every process over the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson

from afterwit.lifecycle import Reason, State
from afterwit.store.database import LAST_CHARACTER, marks
from afterwit.store.moves import Part, TurnState
from afterwit.store.prefix_delta import detach
from afterwit.store.reading import ACCEPTED, REFUSED
from afterwit.store.records import Excluded, ForgetOrder, Pause, ReviewOutcome

PAUSED, PAUSED_ADAPTER, NOTE, FORGET = "paused", "paused adapter:", "note:", "forget:"
"""Keys of `meta`; the last three are prefixes."""

CONTENT_TABLES = ("contents", "next_states", "feedback", "verdicts", "votes")
"""Tables that hold a turn's content, and what was recorded about it."""

BATCH = 32
"""Turns whose content is deleted by one statement, and by retention in one transaction."""

TRAINS = """
    SELECT v.revision = t.revision AND (v.rl = 1 OR v.opd = 1) AS trains FROM turns t
    JOIN contents USING (seq) LEFT JOIN verdicts v USING (seq) WHERE t.seq = ?
"""
"""Whether a turn has a verdict on its newest next state that trains it; no row if its content is gone."""


class Orders(Part):
    """Written by the commands and the page, read by the learner."""

    def pause(self, words: str, *, now: float, adapter: str | None = None) -> Pause:
        """From now on no learner claims a turn; with an `adapter`, none that it would learn from. `words`:
        why. A pause that holds already gets the new ones, and keeps its time."""
        with self._db.alone():
            held = self.paused() if adapter is None else self.paused_adapters().get(adapter)
            pause = replace(held or Pause(since=now, words=words), words=words)
            key = PAUSED if adapter is None else PAUSED_ADAPTER + adapter
            self._set(key, orjson.dumps(pause).decode())
        return pause

    def resume(self) -> Pause | None:
        """End the pauses of all adapters. Returns a pause that ended; None: there was none."""
        with self._db.alone():
            held = [*filter(None, (self.paused(),)), *self.paused_adapters().values()]
            self._db.execute(
                "DELETE FROM meta WHERE key = ? OR (key > ? AND key < ?)",
                (PAUSED, PAUSED_ADAPTER, PAUSED_ADAPTER + LAST_CHARACTER),
            )
        return held[0] if held else None

    def paused(self) -> Pause | None:
        """The pause that holds for all adapters."""
        text = self._get(PAUSED)
        return None if text is None else Pause(**orjson.loads(text))

    def paused_adapters(self) -> Mapping[str, Pause]:
        """The pauses that hold for one adapter each."""
        return {name: Pause(**orjson.loads(text)) for name, text in self._all(PAUSED_ADAPTER).items()}

    def set_note(self, name: str, text: str) -> None:
        """Keep a stage's own text under a name, in place of the last one."""
        with self._db.transaction():
            self._set(NOTE + name, text)

    def note(self, name: str) -> str | None:
        """The newest text under this name."""
        return self._get(NOTE + name)

    def _set(self, key: str, value: str) -> None:
        self._db.put("meta", {"key": key, "value": value}, key="key")

    def _get(self, key: str) -> str | None:
        text: str | None = self._db.value("SELECT value FROM meta WHERE key = ?", (key,))
        return text

    def _all(self, prefix: str) -> dict[str, str]:
        sql = "SELECT key, value FROM meta WHERE key > ? AND key < ?"
        rows = self._db.rows(sql, (prefix, prefix + LAST_CHARACTER))
        return {row["key"].removeprefix(prefix): row["value"] for row in rows}

    def review(self, turns: Sequence[str], *, accept: bool, now: float) -> dict[str, ReviewOutcome]:
        """A person's review of the verdicts of these turns; returns the outcome of each. Raises TurnNotFound.

        An accepted turn may train, a refused one ends. A turn that was refused may be accepted later. What
        trains at this moment, or has trained, stays as it is.
        """
        with self._db.transaction():
            found = [self._state(turn) for turn in turns]
            return {current.id: self._review(current, accept, now) for current in found}

    def _review(self, current: TurnState, accept: bool, now: float) -> ReviewOutcome:
        refused = current.reason is Reason.REVIEW_REFUSED
        if current.state is State.TRAINED:
            return ReviewOutcome.TRAINED
        trains = self._db.value(TRAINS, (current.seq,))
        if not trains or not (current.state is State.JUDGED or refused):
            return ReviewOutcome.NOT_WAITING
        if current.leased(now):
            return ReviewOutcome.IN_UPDATE
        sql = "UPDATE verdicts SET review = ? WHERE seq = ?"
        self._db.execute(sql, (ACCEPTED if accept else REFUSED, current.seq))
        if accept and refused:
            self._move(current, State.JUDGED, now)
        elif not accept and not refused:
            self._move(current, State.SKIPPED, now, Reason.REVIEW_REFUSED)
        return ReviewOutcome.ACCEPTED if accept else ReviewOutcome.REFUSED

    def exclude(self, session: str, *, now: float) -> Excluded:
        """End the session's turns, present and future: they never train. What has trained stays trained."""
        with self._db.alone():
            self._db.execute("INSERT INTO excluded VALUES (?, ?) ON CONFLICT DO NOTHING", (session, now))
            found = self._states("session = ? ORDER BY seq", (session,))
            training = [turn for turn in found if turn.state is State.JUDGED and turn.leased(now)]
            waiting = [turn for turn in found if not turn.ended and turn not in training]
            for current in waiting:
                self._move(current, State.SKIPPED, now, Reason.EXCLUDED)
            self._db.execute(
                "UPDATE turns SET reason = ? WHERE session = ? AND state = 'SKIPPED'"
                " AND reason NOT IN (?, ?)",
                (Reason.EXCLUDED, session, Reason.REVERTED, Reason.FORGOTTEN),
            )
            trained = self._db.rows(
                "SELECT DISTINCT version FROM trained JOIN turns t ON t.id = trained.turn"
                " WHERE t.session = ? AND t.state = 'TRAINED' ORDER BY version",
                (session,),
            )
        versions = tuple(row["version"] for row in trained)
        return Excluded(ended=len(waiting), trained=versions, in_update=len(training))

    def include(self, session: str) -> bool:
        """Future turns may train again; those that ended stay ended. Whether the session was excluded."""
        with self._db.alone():
            return self._db.execute("DELETE FROM excluded WHERE session = ?", (session,)) > 0

    def excluded(self) -> frozenset[str]:
        """The sessions that never train."""
        return frozenset(row["session"] for row in self._db.rows("SELECT session FROM excluded"))

    def order_forgetting(self, session: str, *, replay: bool, now: float) -> None:
        """Have the learner forget a session. A second order replaces the first, and clears its error.

        `commit_version` of a version that forgets the session carries the order out.
        """
        order = ForgetOrder(session=session, replay=replay, at=now, error=None)
        with self._db.transaction():
            self._set(FORGET + session, orjson.dumps(order).decode())

    def forget_orders(self) -> list[ForgetOrder]:
        """The orders that are not carried out yet, oldest first."""
        orders = [ForgetOrder(**orjson.loads(text)) for text in self._all(FORGET).values()]
        return sorted(orders, key=lambda order: (order.at, order.session))

    def forgetting_failed(self, session: str, error: str) -> None:
        """Record why an order cannot be carried out; it is not tried again until it is ordered again."""
        with self._db.alone():
            for order in self.forget_orders():
                if order.session == session:
                    self._set(FORGET + session, orjson.dumps(replace(order, error=error)).decode())

    def cancel_forgetting(self, session: str) -> None:
        """Withdraw an order, if there is one."""
        with self._db.transaction():
            self._db.execute("DELETE FROM meta WHERE key = ?", (FORGET + session,))

    def sessions_of(self, adapter: str) -> tuple[str, ...]:
        """The sessions in which an adapter answered, without those that were forgotten."""
        rows = self._db.rows(
            "SELECT session, min(seq) AS first FROM turns WHERE adapter = ? AND coalesce(reason, '') <> ?"
            " GROUP BY session ORDER BY first",
            (adapter, Reason.FORGOTTEN),
        )
        return tuple(row["session"] for row in rows)

    def turn_ids(self, session: str) -> tuple[str, ...]:
        """The ids of all turns of a session, including those whose content is gone."""
        rows = self._db.rows("SELECT id FROM turns WHERE session = ? ORDER BY seq", (session,))
        return tuple(row["id"] for row in rows)

    def forget(self, session: str, *, now: float) -> int:
        """Delete a session's content, next states, feedback, verdicts, votes, effects, episodes and items of
        the suite. Its turns end as `forgotten`.

        Returns how many had content. It cannot be read back from the store's files, as after `prune`.
        """
        with self._db.alone():
            found = self._forget(session, now=now)
        self._db.wipe()
        return found

    def _forget(self, session: str, *, now: float) -> int:
        found = self._states("session = ? ORDER BY seq", (session,))
        held = sum(
            self._delete_contents([turn.seq for turn in found[start : start + BATCH]])
            for start in range(0, len(found), BATCH)
        )
        for current in found:
            if current.state is not State.SKIPPED:
                self._move(current, State.SKIPPED, now, Reason.FORGOTTEN)
            self._db.execute("UPDATE trained SET effect = NULL WHERE turn = ?", (current.id,))
        self._db.execute(
            "UPDATE turns SET reason = ?, error = NULL, client_session = NULL, prompt_hash = ?,"
            " full_hash = ? WHERE session = ?",
            (Reason.FORGOTTEN, b"", b"", session),
        )
        for table in ("suite", "episodes"):
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
        self.cancel_forgetting(session)
        return held

    def _delete_contents(self, seqs: Sequence[int]) -> int:
        """Delete all that CONTENT_TABLES hold of these turns; returns how many had content."""
        here = marks(len(seqs))
        held = self._db.value(f"SELECT count(*) FROM contents WHERE seq IN ({here})", seqs)
        detach(self._db, seqs)
        for table in CONTENT_TABLES:
            self._db.execute(f"DELETE FROM {table} WHERE seq IN ({here})", seqs)
        return int(held)
