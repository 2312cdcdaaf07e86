"""The port's `Keys` in SQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from afterwit.errors import StoreError
from afterwit.lifecycle import CLASS_OF, Reason, ReasonClass, State
from afterwit.store.records import Key, Pruned, Status
from afterwit.store.sql.database import ALL, Component, Row, marks
from afterwit.store.sql.growing import detach
from afterwit.store.sql.turn_state import TurnState, find_turn_state, is_excluded, move, skip_open


class SqlKeys(Component):
    def add_key(self, name: str, scopes: Collection[str], hash: str, *, now: float) -> None:
        with self._database.alone():
            taken = "SELECT 1 FROM keys WHERE hash = ? OR (name = ? AND revoked IS NULL)"
            if self._database.row(taken, (hash, name)):
                raise StoreError(f"there is a key {name!r} already: choose another name")
            self._database.execute("DELETE FROM keys WHERE name = ?", (name,))
            row = {"name": name, "scopes": " ".join(sorted(scopes)), "hash": hash, "created": now}
            self._database.insert("keys", row)

    def keys(self) -> list[Key]:
        return [_key(row) for row in self._database.rows("SELECT * FROM keys ORDER BY created, name")]

    def revoke_key(self, name: str, *, now: float) -> None:
        with self._database.alone():
            known = self._database.execute(
                "UPDATE keys SET revoked = coalesce(revoked, ?) WHERE name = ?", (now, name)
            )
            if not known:
                raise StoreError(f"there is no key {name!r}")


def _key(row: Row) -> Key:
    return Key(
        name=row["name"],
        scopes=frozenset(row["scopes"].split()),
        hash=row["hash"],
        created=row["created"],
        revoked=row["revoked"],
    )


BATCH = 32
"""Turns removed in one transaction, so that others can write in between."""


FAILED = frozenset(reason for reason, kind in CLASS_OF.items() if kind is ReasonClass.FAILED)


BY_HAND = FAILED | {Reason.REVERTED}
"""Reasons of turns that go back if they are named themselves."""


CONTENT_TABLES = ("contents", "next_states", "feedback", "verdicts", "votes")
"""Tables that hold what was said in a turn and about it."""


class SqlRetention(Component):
    def expire_open(self, older_than: float, *, now: float) -> int:
        return skip_open(self._database, "created < ?", older_than, now=now)

    def prune(
        self, *, now: float, max_age_s: float | None, max_bytes: int | None, limit: int = 2048
    ) -> Pruned:
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
        """Remove what the suite holds of turns that are older, whether they ended or not; how many."""
        with self._database.transaction():
            return self._database.execute(
                "DELETE FROM suite WHERE since < ? OR turn IN"
                " (SELECT t.id FROM suite s JOIN turns t ON t.id = s.turn WHERE t.created < ?)",
                (created_before, created_before),
            )

    def _remove_oldest(self, limit: int, created_before: float = float("inf")) -> int:
        """Remove the oldest turns that ended, in transactions between which others can write; how many."""
        removed = 0
        while removed < limit:
            with self._database.alone():
                batch = self._ended(min(BATCH, limit - removed), created_before)
                if not batch:
                    break
                self._remove(batch)
            removed += len(batch)
        return removed

    def size(self) -> int:
        return self._database.size()

    def _ended(self, limit: int, created_before: float) -> Sequence[Row]:
        """The oldest turns that ended and have content, up to the first one that is younger."""
        young = self._database.row(
            "SELECT c.seq FROM contents c CROSS JOIN turns t WHERE t.seq = c.seq AND t.created > ?"
            " ORDER BY c.seq LIMIT 1",
            (created_before,),
        )
        return self._database.rows(
            "SELECT c.seq, t.id FROM contents c CROSS JOIN turns t WHERE t.seq = c.seq"
            " AND c.seq < ? AND t.state IN ('SKIPPED', 'TRAINED') ORDER BY c.seq LIMIT ?",
            (ALL if young is None else young["seq"], limit),
        )

    def _remove(self, batch: Sequence[Row]) -> None:
        seqs = [row["seq"] for row in batch]
        here = marks(len(seqs))
        detach(self._database, seqs)
        for table in CONTENT_TABLES:
            self._database.execute(f"DELETE FROM {table} WHERE seq IN ({here})", seqs)
        self._database.execute(
            f"DELETE FROM turns WHERE seq IN ({here}) AND id NOT IN (SELECT turn FROM trained)", seqs
        )

    def requeue(self, turns: Sequence[str] | None = None, *, reason: Reason | None = None, now: float) -> int:
        allowed = FAILED if turns is None else BY_HAND
        with self._database.alone():
            named = self._skipped() if turns is None else turns
            found = [
                current for turn in named if (current := find_turn_state(self._database, turn)) is not None
            ]
            chosen = [
                current for current in found if current.reason in allowed and reason in (None, current.reason)
            ]
            return sum(self._put_back(current, now) for current in chosen)

    def _skipped(self) -> list[str]:
        here = marks(len(FAILED))
        sql = f"SELECT id FROM turns WHERE state = 'SKIPPED' AND reason IN ({here}) ORDER BY seq"
        return [row["id"] for row in self._database.rows(sql, tuple(FAILED))]

    def _put_back(self, current: TurnState, now: float) -> bool:
        """To JUDGED if a verdict on its newest next state trains it, else to ANSWERED; False: neither."""
        row = self._database.row(
            "SELECT v.revision = t.revision AND (v.rl = 1 OR v.opd = 1) AS trains FROM turns t"
            " JOIN contents USING (seq) LEFT JOIN verdicts v USING (seq) WHERE t.seq = ?",
            (current.seq,),
        )
        if row is None or is_excluded(self._database, current) or not (current.revision or row["trains"]):
            return False
        move(self._database, current, State.JUDGED if row["trains"] else State.ANSWERED, now=now)
        return True


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
