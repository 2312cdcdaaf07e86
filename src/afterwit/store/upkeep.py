"""Retention, the health of stages, and API keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from afterwit.errors import StoreError
from afterwit.lifecycle import CLASS_OF, Reason, ReasonClass, State
from afterwit.store.database import ALL, marks
from afterwit.store.moves import TurnState
from afterwit.store.orders import BATCH, TRAINS, Orders
from afterwit.store.records import Key, Status
from afterwit.store.rows import columns_of, read

FAILED = frozenset(reason for reason, kind in CLASS_OF.items() if kind is ReasonClass.FAILED)

BY_HAND = FAILED | {Reason.REVERTED}
"""Reasons of turns that are put back only if they are named."""

STATUS_KEPT_S = 7 * 86400.0
"""Seconds without a report from a machine, after which its status of a stage is dropped once another machine
reports that stage."""


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
        if removed or approved:
            self._db.wipe()
        return removed

    def _remove_oldest(self, limit: int, created_before: float = float("inf")) -> int:
        """Remove the oldest ended turns with content, up to the first turn that is younger, in transactions
        between which others can write; returns how many."""
        joined, removed = "SELECT c.seq FROM contents c CROSS JOIN turns t WHERE t.seq = c.seq", 0
        while removed < limit:
            with self._db.alone():
                young = self._db.value(
                    f"{joined} AND t.created > ? ORDER BY c.seq LIMIT 1", (created_before,)
                )
                ended = f"{joined} AND c.seq < ? AND t.state IN ('SKIPPED', 'TRAINED') ORDER BY c.seq LIMIT ?"
                values = (ALL if young is None else young, min(BATCH, limit - removed))
                seqs = [row["seq"] for row in self._db.rows(ended, values)]
                if not seqs:
                    break
                self._delete_contents(seqs)
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
