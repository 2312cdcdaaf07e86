"""People's orders, and the upkeep of the store: retention, the health of stages, API keys.

An order (pause, review, exclude, forget) holds until it is withdrawn or carried out, across restarts and for
every process over the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from afterwit.errors import StoreError
from afterwit.lifecycle import Reason, ReasonClass, State, Worded
from afterwit.store.database import ALL, LAST_CHARACTER, marks
from afterwit.store.moves import Part, TurnState
from afterwit.store.reading import ACCEPTED, REFUSED
from afterwit.store.rows import columns_of, detach, read

PAUSED, PAUSED_ADAPTER, NOTE, FORGET = "paused", "paused adapter:", "note:", "forget:"
"""Keys of `meta`; the last three are prefixes."""

CONTENT_TABLES = ("contents", "next_states", "feedback", "verdicts", "votes", "taught")
"""Tables that hold a turn's content, and what was recorded about it."""

UNSAID = """
    DELETE FROM lessons WHERE NOT EXISTS (SELECT 1 FROM taught WHERE lesson = number AND prompt IS NULL)
"""
"""Removes the lessons that no turn carries."""

UNTRAINED = """(
    prompt IS NULL OR NOT EXISTS (SELECT 1 FROM turns t JOIN trained ON turn = t.id WHERE t.seq = taught.seq)
)"""
"""Rows of `taught` that retention removes, with those of `earlier`. The others name what the weights
learned of a lesson, so that it can be unlearned; UNWORDED leaves no words of theirs once it is gone."""

UNWORDED = """
    UPDATE {} SET words = '' WHERE words <> '' AND lesson NOT IN (SELECT number FROM lessons)
    AND seq NOT IN (SELECT seq FROM contents)
"""

OF_SESSION = """
    (session = ? OR id IN (
        SELECT t.id FROM taught k JOIN turns t USING (seq) LEFT JOIN turns p ON p.id = k.prompt
        WHERE p.session = ? OR (k.prompt IS NOT NULL AND 'lesson:' || k.lesson = ?)
        UNION
        SELECT t.id FROM earlier e JOIN turns t USING (seq)
        WHERE e.session = ? OR 'lesson:' || e.lesson = ?
    ))
"""
"""Whether a turn is of a session, practised on one of its prompts, or was taught in its words too.
`lesson:NUMBER`, in place of a session, names what practised this lesson or was taught in its words."""

BATCH = 32
"""Turns whose content is deleted by one statement, and by retention in one transaction."""

TRAINS = """
    SELECT v.revision = t.revision AND (v.rl = 1 OR v.opd = 1) AS trains FROM turns t
    JOIN contents USING (seq) LEFT JOIN verdicts v USING (seq) WHERE t.seq = ?
"""
"""Whether a turn has a verdict on its newest next state that trains it; no row if its content is gone."""


class ReviewOutcome(Worded):
    """The effect of a person's review of a turn, and `words` about it."""

    ACCEPTED = "accepted", "accepted: it may train"
    REFUSED = "refused", "refused: it does not train"
    IN_UPDATE = "in_update", "an update is training it: nothing changed"
    TRAINED = "trained", "it has trained already: nothing changed; `afterwit rollback` takes it back"
    NOT_WAITING = "not_waiting", "it has no verdict that could train: nothing changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """The effect of excluding a session."""

    ended: int
    """Turns that would have trained or might have."""
    trained: tuple[int, ...]
    """Versions that trained on its turns before, oldest first."""
    in_update: int
    """Turns that train at this moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOrder:
    """A session that is to be forgotten."""

    session: str
    replay: bool
    """Whether later updates are run again without it; else they are reverted."""
    at: float
    error: str | None
    """Why it cannot be carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A person's order to stop learning."""

    since: float
    words: str
    """Why; may be empty."""


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
        text = self._get(PAUSED)
        return None if text is None else Pause(**orjson.loads(text))

    def paused_adapters(self) -> Mapping[str, Pause]:
        return {name: Pause(**orjson.loads(text)) for name, text in self._all(PAUSED_ADAPTER).items()}

    def set_note(self, name: str, text: str) -> None:
        """Keep a stage's own text under a name, in place of the last one."""
        with self._db.transaction():
            self._set(NOTE + name, text)

    def note(self, name: str) -> str | None:
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
            found = self._states(f"{OF_SESSION} ORDER BY seq", (session,) * 5)
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
        """The ids of all turns of a session and of what practised on its prompts, including those whose
        content is gone."""
        rows = self._db.rows(f"SELECT id FROM turns WHERE {OF_SESSION} ORDER BY seq", (session,) * 5)
        return tuple(row["id"] for row in rows)

    def forget(self, session: str, *, now: float) -> int:
        """Delete a session's content, next states, feedback, verdicts, votes, effects, episodes, items of the
        suite and lessons, and what practised on its prompts. Its turns end as `forgotten`.

        Returns how many had content. It cannot be read back from the store's files, as after `prune`.
        """
        with self._db.alone():
            found = self._forget(session, now=now)
        self._db.wipe()
        return found

    def _forget(self, session: str, *, now: float) -> int:
        found = self._states(f"{OF_SESSION} ORDER BY seq", (session,) * 5)
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
                " full_hash = ? WHERE seq = ?",
                (Reason.FORGOTTEN, b"", b"", current.seq),
            )
        for table in ("suite", "episodes"):
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
        self.cancel_forgetting(session)
        return held

    def _delete_contents(self, seqs: Sequence[int], *, taught: str = "TRUE") -> int:
        """Delete all that CONTENT_TABLES hold of these turns, of `taught` the rows for which this holds;
        returns how many turns had content."""
        here = marks(len(seqs))
        held = self._db.value(f"SELECT count(*) FROM contents WHERE seq IN ({here})", seqs)
        detach(self._db, seqs)
        for table in CONTENT_TABLES:
            only = taught if table == "taught" else "TRUE"
            self._db.execute(f"DELETE FROM {table} WHERE seq IN ({here}) AND {only}", seqs)
        untaught = f"seq IN ({here}) AND seq NOT IN (SELECT seq FROM taught)"
        self._db.execute(f"DELETE FROM earlier WHERE {untaught}", seqs)
        self._db.execute(UNSAID)
        return int(held)


FAILED = frozenset(reason for reason in Reason if reason.kind is ReasonClass.FAILED)

BY_HAND = FAILED | {Reason.REVERTED}
"""Reasons of turns that are put back only if they are named."""

STATUS_KEPT_S = 7 * 86400.0
"""Seconds without a report from a machine, after which its status of a stage is dropped once another machine
reports that stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A stage's health, as it reported it."""

    stage: str
    machine: str = ""
    """The machine that it runs on, if the store is shared."""
    ok: bool
    message: str
    at: float

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.stage} on {self.machine}" if self.machine else self.stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key. The key itself is never stored."""

    name: str
    scopes: frozenset[str]
    hash: str
    created: float
    revoked: float | None = None


class Upkeep(Orders):
    """Called by housekeeping, the stages and the commands."""

    def expire_open(self, older_than: float, *, now: float) -> int:
        """Skip OPEN turns created before `older_than`; returns how many. A late reply reopens them."""
        return self._skip_open("created < ?", older_than, now)

    def prune(self, *, now: float, max_age_s: float | None, max_bytes: int | None, limit: int = 2048) -> int:
        """Remove ended turns older than `max_age_s`, and the suite's items of turns that old; then the oldest
        turns until the rest is within `max_bytes`. None: no such limit. Returns how many turns it removed.

        Turns that wait are never removed. A trained turn leaves what its version's count needs. At most
        `limit` turns a call: call again for more. What was removed cannot be read back from the store's
        files, unless another process still reads an older snapshot.
        """
        removed = approved = 0
        if max_age_s is not None:
            oldest = now - max_age_s
            with self._db.transaction():
                approved = self._db.execute(
                    "DELETE FROM suite WHERE since < ? OR turn IN"
                    " (SELECT t.id FROM suite s JOIN turns t ON t.id = s.turn WHERE t.created < ?)",
                    (oldest, oldest),
                )
            removed = self._remove_oldest(limit, oldest)
        if max_bytes is not None:
            while removed < limit and (excess := self._db.turns_beyond(max_bytes)):
                if not (gone := self._remove_oldest(min(excess, limit - removed))):
                    break
                removed += gone
        if removed:
            with self._db.transaction():
                for table in ("taught", "earlier"):
                    self._db.execute(UNWORDED.format(table))
        if removed or approved:
            self._db.wipe()
        return removed

    def _remove_oldest(self, limit: int, created_before: float = float("inf")) -> int:
        """Remove the oldest ended turns with content, up to the first turn that is younger, in transactions
        between which others can write; returns how many."""
        joined, removed = "SELECT c.seq FROM contents c CROSS JOIN turns t WHERE t.seq = c.seq", 0
        young = ALL
        if created_before < float("inf"):
            sql = f"{joined} AND t.created > ? ORDER BY c.seq LIMIT 1"
            young = self._db.value(sql, (created_before,)) or ALL
        old = f"{joined} AND c.seq < ? AND t.created <= ?"  # others may add young turns meanwhile
        ended = f"{old} AND t.state IN ('SKIPPED', 'TRAINED') ORDER BY c.seq LIMIT ?"
        while removed < limit:
            with self._db.alone():
                values = (young, created_before, min(BATCH, limit - removed))
                seqs = [row["seq"] for row in self._db.rows(ended, values)]
                if not seqs:
                    break
                self._delete_contents(seqs, taught=UNTRAINED)
                self._db.execute(
                    f"DELETE FROM turns WHERE seq IN ({marks(len(seqs))})"
                    " AND id NOT IN (SELECT turn FROM trained)",
                    seqs,
                )
            removed += len(seqs)
        return removed

    def size(self) -> int:
        """Bytes in use. Room that pruning freed and new turns will take does not count."""
        return self._db.size()

    def requeue(self, turns: Sequence[str] | None = None, *, reason: Reason | None = None, now: float) -> int:
        """Put skipped turns back where their step failed; returns how many.

        Of `turns` (None: of all) those that failed, or only those with `reason`. A turn that was rolled back
        returns only if it is named.
        """
        allowed = FAILED if turns is None else BY_HAND
        with self._db.alone():
            if turns is None:
                sql = f"SELECT id FROM turns WHERE state = 'SKIPPED' AND reason IN ({marks(len(FAILED))})"
                turns = [row["id"] for row in self._db.rows(f"{sql} ORDER BY seq", tuple(FAILED))]
            found = [current for turn in turns if (current := self._find_state(turn)) is not None]
            return sum(
                self._put_back(current, now)
                for current in found
                if current.reason in allowed and reason in (None, current.reason)
            )

    def _put_back(self, current: TurnState, now: float) -> bool:
        """To JUDGED if a verdict on its newest next state trains it, else to ANSWERED; False: neither."""
        row = self._db.row(TRAINS, (current.seq,))
        if row is None or self._is_excluded(current) or not (current.revision or row["trains"]):
            return False
        self._move(current, State.JUDGED if row["trains"] else State.ANSWERED, now)
        return True

    def set_status(self, stage: str, ok: bool, message: str, *, now: float) -> None:
        """Replace a stage's status; on a shared store, that of this machine.

        Another machine's status of the stage is dropped if that machine has been silent for a week. A status
        without a machine, next to one with a machine, came with a copy of a store that was not shared.
        """
        machine = self._db.machine
        status = Status(stage=stage, machine=machine, ok=ok, message=message, at=now)
        with self._db.transaction():
            self._db.put("statuses", columns_of(status), key="stage, machine")
            self._db.execute(
                "DELETE FROM statuses WHERE stage = ? AND machine <> ?"
                " AND (at < ? OR machine = '' OR ? = '')",
                (stage, machine, now - STATUS_KEPT_S, machine),
            )

    def statuses(self) -> list[Status]:
        """The newest status of each stage and machine, by the stage's name, then the machine's."""
        rows = self._db.rows("SELECT * FROM statuses ORDER BY stage, machine")
        return [read(Status, row) for row in rows]

    def add_key(self, name: str, scopes: Collection[str], hash: str, *, now: float) -> None:
        """Store an API key's hash. Raises StoreError if the hash is taken, or the name by a key that is not
        revoked."""
        with self._db.alone():
            taken = "SELECT 1 FROM keys WHERE hash = ? OR (name = ? AND revoked IS NULL)"
            if self._db.row(taken, (hash, name)):
                raise StoreError(f"there is a key {name!r} already: choose another name")
            self._db.execute("DELETE FROM keys WHERE name = ?", (name,))
            row = {"name": name, "scopes": " ".join(sorted(scopes)), "hash": hash, "created": now}
            self._db.insert("keys", row)

    def keys(self) -> list[Key]:
        """All keys, revoked ones included, oldest first."""
        rows = self._db.rows("SELECT * FROM keys ORDER BY created, name")
        return [read(Key, row, scopes=frozenset(row["scopes"].split())) for row in rows]

    def revoke_key(self, name: str, *, now: float) -> None:
        """Raises StoreError for an unknown name. A second revocation keeps the time of the first."""
        with self._db.alone():
            sql = "UPDATE keys SET revoked = coalesce(revoked, ?) WHERE name = ?"
            if not self._db.execute(sql, (now, name)):
                raise StoreError(f"there is no key {name!r}")
