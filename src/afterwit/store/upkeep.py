"""Retention, the health of stages, and API keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from afterwit.errors import StoreError
from afterwit.lifecycle import CLASS_OF, Reason, ReasonClass, State
from afterwit.store.database import ALL, Row, marks
from afterwit.store.moves import TurnState, find_turn_state, is_excluded, move, skip_open
from afterwit.store.orders import BATCH, TRAINS, Orders
from afterwit.store.records import Key, Pruned, Status
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
        return skip_open(self._database, "created < ?", older_than, now=now)

    def prune(
        self, *, now: float, max_age_s: float | None, max_bytes: int | None, limit: int = 2048
    ) -> Pruned:
        """Remove ended turns older than `max_age_s`, and the suite's items of turns that old; then the oldest
        turns until the rest is within `max_bytes`. None: no such limit.

        Turns that wait are never removed. A trained turn leaves what its version's count needs. At most
        `limit` turns a call: call again for more. What was removed cannot be read back from the store's
        files, unless another process still reads an older snapshot.
        """
        removed = approved = 0
        if max_age_s is not None:
            approved = self._remove_approved(now - max_age_s)
            removed = self._remove_oldest(limit, now - max_age_s)
        if max_bytes is not None:
            while removed < limit and (excess := self._database.turns_beyond(max_bytes)):
                gone = self._remove_oldest(min(excess, limit - removed))
                if not gone:
                    break
                removed += gone
        if removed or approved:
            self._database.wipe()
        size = self.size()
        return Pruned(turns=removed, size=size, over_budget=max_bytes is not None and size > max_bytes)

    def _remove_approved(self, created_before: float) -> int:
        """Remove the suite's items of older turns, ended or not; returns how many."""
        with self._database.transaction():
            return self._database.execute(
                "DELETE FROM suite WHERE since < ? OR turn IN"
                " (SELECT t.id FROM suite s JOIN turns t ON t.id = s.turn WHERE t.created < ?)",
                (created_before, created_before),
            )

    def _remove_oldest(self, limit: int, created_before: float = float("inf")) -> int:
        """Remove the oldest ended turns, in transactions between which others can write; returns how many."""
        removed = 0
        while removed < limit:
            with self._database.alone():
                batch = self._ended(min(BATCH, limit - removed), created_before)
                if not batch:
                    break
                seqs = [row["seq"] for row in batch]
                self._delete_contents(seqs)
                self._database.execute(
                    f"DELETE FROM turns WHERE seq IN ({marks(len(seqs))})"
                    " AND id NOT IN (SELECT turn FROM trained)",
                    seqs,
                )
            removed += len(batch)
        return removed

    def _ended(self, limit: int, created_before: float) -> Sequence[Row]:
        """The oldest ended turns with content, up to the first one that is younger."""
        young = self._database.row(
            "SELECT c.seq FROM contents c CROSS JOIN turns t WHERE t.seq = c.seq AND t.created > ?"
            " ORDER BY c.seq LIMIT 1",
            (created_before,),
        )
        return self._database.rows(
            "SELECT c.seq FROM contents c CROSS JOIN turns t WHERE t.seq = c.seq"
            " AND c.seq < ? AND t.state IN ('SKIPPED', 'TRAINED') ORDER BY c.seq LIMIT ?",
            (ALL if young is None else young["seq"], limit),
        )

    def size(self) -> int:
        """Bytes in use. Room that pruning freed and new turns will take does not count."""
        return self._database.size()

    def requeue(self, turns: Sequence[str] | None = None, *, reason: Reason | None = None, now: float) -> int:
        """Put skipped turns back where their step failed; returns how many.

        Of `turns` (None: of all) those that failed, or only those with `reason`. A turn that was rolled back
        returns only if it is named.
        """
        allowed = FAILED if turns is None else BY_HAND
        with self._database.alone():
            if turns is None:
                sql = f"SELECT id FROM turns WHERE state = 'SKIPPED' AND reason IN ({marks(len(FAILED))})"
                rows = self._database.rows(f"{sql} ORDER BY seq", tuple(FAILED))
                turns = [row["id"] for row in rows]
            found = [find_turn_state(self._database, turn) for turn in turns]
            return sum(
                self._put_back(current, now)
                for current in found
                if current is not None and current.reason in allowed and reason in (None, current.reason)
            )

    def _put_back(self, current: TurnState, now: float) -> bool:
        """To JUDGED if a verdict on its newest next state trains it, else to ANSWERED; False: neither."""
        row = self._database.row(TRAINS, (current.seq,))
        if row is None or is_excluded(self._database, current) or not (current.revision or row["trains"]):
            return False
        move(self._database, current, State.JUDGED if row["trains"] else State.ANSWERED, now=now)
        return True

    def set_status(self, stage: str, ok: bool, message: str, *, now: float) -> None:
        """Replace a stage's status; on a shared store, that of this machine.

        Another machine's status of the stage is dropped if that machine has been silent for a week. A status
        without a machine, next to one with a machine, came with a copy of a store that was not shared.
        """
        with self._database.transaction():
            machine = self._database.machine
            status = Status(stage=stage, machine=machine, ok=ok, message=message, at=now)
            self._database.put("statuses", columns_of(status), key="stage, machine")
            self._database.execute(
                "DELETE FROM statuses WHERE stage = ? AND machine <> ?"
                " AND (at < ? OR machine = '' OR ? = '')",
                (stage, machine, now - STATUS_KEPT_S, machine),
            )

    def statuses(self) -> list[Status]:
        """The newest status of each stage and machine, by the stage's name, then the machine's."""
        rows = self._database.rows("SELECT * FROM statuses ORDER BY stage, machine")
        return [read(Status, row) for row in rows]

    def add_key(self, name: str, scopes: Collection[str], hash: str, *, now: float) -> None:
        """Store an API key's hash. Raises StoreError if the hash is taken, or the name by a key that is not
        revoked."""
        with self._database.alone():
            taken = "SELECT 1 FROM keys WHERE hash = ? OR (name = ? AND revoked IS NULL)"
            if self._database.row(taken, (hash, name)):
                raise StoreError(f"there is a key {name!r} already: choose another name")
            self._database.execute("DELETE FROM keys WHERE name = ?", (name,))
            row = {"name": name, "scopes": " ".join(sorted(scopes)), "hash": hash, "created": now}
            self._database.insert("keys", row)

    def keys(self) -> list[Key]:
        """All keys, revoked ones included, oldest first."""
        rows = self._database.rows("SELECT * FROM keys ORDER BY created, name")
        return [read(Key, row, scopes=frozenset(row["scopes"].split())) for row in rows]

    def revoke_key(self, name: str, *, now: float) -> None:
        """Raises StoreError for an unknown name. A second revocation keeps the time of the first."""
        with self._database.alone():
            known = self._database.execute(
                "UPDATE keys SET revoked = coalesce(revoked, ?) WHERE name = ?", (now, name)
            )
            if not known:
                raise StoreError(f"there is no key {name!r}")
