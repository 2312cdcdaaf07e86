"""Versions, and which turns each was trained on.

The manifests in the checkpoint folder are the truth, and the store follows them. Committing is idempotent:
after a crash between a manifest's rename and its commit, it is repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager

import orjson

from afterwit.errors import StoreError
from afterwit.lifecycle import Reason, State
from afterwit.store.database import ALL, Row, marks
from afterwit.store.moves import TurnState
from afterwit.store.records import LearnedTurn, Reconciled, VersionRecord
from afterwit.store.rows import read
from afterwit.store.upkeep import Orders
from afterwit.turn import SHARED
from afterwit.version import Origin, Version

TO_TRAINED: Mapping[State, tuple[State, ...]] = {
    State.JUDGED: (State.TRAINED,),
    State.ANSWERED: (State.JUDGED, State.TRAINED),
    State.SKIPPED: (State.JUDGED, State.TRAINED),
    State.TRAINED: (),
}
"""The moves of a turn that a manifest names, by its state: a next state that changed since came too late."""

VERSIONS = """
    SELECT v.*, (SELECT count(*) FROM trained t WHERE t.version = v.number AND t.replayed = 0) AS trained,
        (SELECT count(*) FROM trained t WHERE t.version = v.number AND t.replayed = 1) AS replayed
    FROM versions v
"""


class Lineage(Orders):
    """Commits of the learner and the publisher."""

    def leading(self) -> AbstractContextManager[None]:
        """While the body runs, no other process learns over the store, whichever home it has. Raises
        AlreadyRunning if one does."""
        return self._db.leading()

    def commit_version(self, version: Version, *, now: float) -> int:
        """Adopt a manifest: its new turns become TRAINED, and so do those of versions that it brings back;
        the turns of versions it reverts end. What a later known version reverts stays reverted.

        Returns how many of its turns became TRAINED: not those that another version had trained, or that this
        store does not have. Raises StoreError if the number is known with other turns.
        """
        with self._db.alone():
            if self._knows(version):
                return 0
            self._write_version(version, now)
            found = [current for turn in version.turns if (current := self._find_state(turn)) is not None]
            for current in found:
                self._train(current, now)
            self._settle({version.number, *version.reverts, *version.returns}, now)
            for session in version.forgets:
                self._forget(session, now=now)
        if version.forgets:
            self._db.wipe()
        return sum(current.state is not State.TRAINED for current in found)

    def _knows(self, version: Version) -> bool:
        if self._db.row("SELECT 1 FROM versions WHERE number = ?", (version.number,)) is None:
            return False
        if set(self._trained_by(version.number)) != set(version.turns):
            raise StoreError(
                f"version {version.number} is known with other turns: reconcile with the manifests"
            )
        return True

    def _trained_by(self, number: int) -> tuple[str, ...]:
        rows = self._db.rows("SELECT turn FROM trained WHERE version = ? AND replayed = 0", (number,))
        return tuple(row["turn"] for row in rows)

    def _write_version(self, version: Version, now: float) -> None:
        row = {
            "number": version.number,
            "parent": version.parent,
            "origin": version.origin,
            "created": version.created,
            "restores": version.restores,
            "reverts": orjson.dumps(version.reverts),
            "returns": orjson.dumps(version.returns),
            "metrics": orjson.dumps(version.metrics),
            "suite": None if version.suite is None else orjson.dumps(version.suite),
            "committed_at": now,
            "adapter": version.adapter,
        }
        self._db.insert("versions", row)
        effects = {effect.turn: orjson.dumps(effect) for effect in version.effects}
        for replayed, turns in ((False, version.turns), (True, version.replayed)):
            for turn in turns:
                self._db.execute(
                    "INSERT INTO trained (version, turn, replayed, effect) VALUES (?, ?, ?, ?)"
                    " ON CONFLICT DO NOTHING",
                    (version.number, turn, replayed, effects.get(turn)),
                )
        for effect in version.effects:
            if effect.hinted_before is not None:
                self._db.execute(
                    "UPDATE taught SET gap = ? * tokens, version = ?"
                    " WHERE seq = (SELECT seq FROM turns WHERE id = ?)",
                    (effect.before - effect.hinted_before, version.number, effect.turn),
                )

    def _train(self, current: TurnState, now: float) -> None:
        if current.reason is Reason.FORGOTTEN:
            return
        for state in TO_TRAINED[current.state]:
            self._move(current, state, now)
            current = self._state(current.id)

    def _settle(self, numbers: Collection[int], now: float) -> None:
        """The turns of these versions are TRAINED if the newest weights hold them, else reverted."""
        gone = self._gone()
        for turn in dict.fromkeys(turn for number in sorted(numbers) for turn in self._trained_by(number)):
            if (current := self._find_state(turn)) is None:
                continue
            if self._in_weights(turn, gone):
                self._train(current, now)
            elif current.state is State.TRAINED:
                self._move(current, State.SKIPPED, now, Reason.REVERTED)

    def _gone(self) -> set[int]:
        """The updates that rollbacks took out of the newest weights."""
        gone: set[int] = set()
        sql = "SELECT reverts, returns FROM versions WHERE origin = ? ORDER BY number"
        for row in self._db.rows(sql, (Origin.ROLLBACK,)):
            gone.update(orjson.loads(row["reverts"]))
            gone.difference_update(orjson.loads(row["returns"]))
        return gone

    def _in_weights(self, turn: str, gone: Collection[int]) -> bool:
        rows = self._db.rows("SELECT version FROM trained WHERE turn = ? AND replayed = 0", (turn,))
        return any(row["version"] not in gone for row in rows)

    def reconcile(self, manifests: Sequence[Version], *, now: float, error: str | None = None) -> Reconciled:
        """Make the store agree with every manifest of the checkpoint folder. Called when a learner starts.

        Unknown manifests are committed. A version that is neither among them nor an ancestor of one, or that
        names other turns than its manifest, is lost: its turns go back to JUDGED (to ANSWERED if their next
        state changed since), and turns that a lost rollback reverted are TRAINED again. Leases of an earlier
        learner are freed; an `error`, its cause of death, counts as a failed attempt.
        """
        with self._db.alone():
            lost = self._lost(manifests)
            returned = sum(self._lose(row, now) for row in lost)
            missing = [m for m in sorted(manifests, key=lambda m: m.number) if not self._knows(m)]
            for manifest in missing:
                self.commit_version(manifest, now=now)
            held = "state = 'JUDGED' AND owner IS NOT NULL"
            self._db.execute(
                f"UPDATE turns SET attempts = attempts + ?, error = coalesce(?, error) WHERE {held}",
                (error is not None, error),
            )
            freed = self._states(f"{held} ORDER BY seq")
            for current in freed:
                self._unlease(current, now)
        return Reconciled(
            committed=tuple(manifest.number for manifest in missing),
            lost=tuple(row["number"] for row in lost),
            returned=returned,
            freed=tuple(current.id for current in freed),
        )

    def _lost(self, manifests: Sequence[Version]) -> list[Row]:
        """The newest first."""
        rows = {row["number"]: row for row in self._db.rows("SELECT * FROM versions")}
        relatives = dict[int | None, set[int | None]]()
        for number, row in rows.items():
            moved = (*orjson.loads(row["reverts"]), *orjson.loads(row["returns"]))
            relatives[number] = {*moved, row["parent"], row["restores"]}
        relatives |= {m.number: {*m.reverts, *m.returns, m.parent, m.restores} for m in manifests}
        standing: set[int | None] = {None}
        waiting: set[int | None] = {m.number for m in manifests}
        while waiting:
            standing.add(found := waiting.pop())
            waiting |= relatives.get(found, set()) - standing
        for m in manifests:
            if m.number in rows and set(self._trained_by(m.number)) != set(m.turns):
                standing.discard(m.number)
        return [row for number, row in sorted(rows.items(), reverse=True) if number not in standing]

    def _lose(self, row: Row, now: float) -> int:
        """Remove a lost version; returns how many of its turns wait again, which pruned ones cannot."""
        found = [self._find_state(turn) for turn in self._trained_by(row["number"])]
        self._db.execute("DELETE FROM trained WHERE version = ?", (row["number"],))
        self._db.execute("DELETE FROM versions WHERE number = ?", (row["number"],))
        self._settle({*orjson.loads(row["reverts"]), *orjson.loads(row["returns"])}, now)
        gone, again = self._gone(), list[TurnState]()
        for current in found:
            if current is None or current.state is not State.TRAINED or self._in_weights(current.id, gone):
                continue
            if self._db.row("SELECT 1 FROM contents WHERE seq = ?", (current.seq,)) is not None:
                again.append(current)
        for current in again:
            self._untrain(current, now)
        return len(again)

    def _untrain(self, current: TurnState, now: float) -> None:
        """Back to JUDGED, or to ANSWERED if its next state changed after its verdict."""
        if self._is_excluded(current):
            self._move(current, State.SKIPPED, now, Reason.EXCLUDED)
            return
        self._move(current, State.JUDGED, now)
        known = self._db.value("SELECT revision FROM verdicts WHERE seq = ?", (current.seq,))
        if known != current.revision:
            self._move(self._state(current.id), State.ANSWERED, now)

    def published(self, number: int, *, now: float) -> None:
        """The engine serves this version. Raises StoreError for a version that is not committed."""
        with self._db.transaction():
            if not self._db.execute("UPDATE versions SET published_at = ? WHERE number = ?", (now, number)):
                raise StoreError(f"there is no version {number}")

    def latest_published(self, adapter: str = SHARED) -> int:
        """The adapter's newest version that was ever served; 0, the base, if none was."""
        served = "published_at IS NOT NULL AND adapter = ?"
        return self._db.value(f"SELECT max(number) FROM versions WHERE {served}", (adapter,)) or 0

    def versions(self, adapter: str | None = None) -> list[VersionRecord]:
        """All versions that are not lost, oldest first; only the base and an adapter's, if it is named."""
        only, named = ("", ()) if adapter is None else (" WHERE v.adapter = ? OR v.number = 0", (adapter,))
        rows = self._db.rows(f"{VERSIONS}{only} ORDER BY v.number", named)
        return [read(VersionRecord, row) for row in rows]

    def newest_versions(self, *, before: int | None = None, limit: int = 50) -> list[VersionRecord]:
        """The newest versions that are not lost, the newest first; those before the number `before`."""
        sql = f"{VERSIONS} WHERE v.number < ? ORDER BY v.number DESC LIMIT ?"
        rows = self._db.rows(sql, (ALL if before is None else before, limit))
        return [read(VersionRecord, row) for row in rows]

    def learned(
        self, *, version: int | None = None, turns: Collection[str] | None = None
    ) -> list[LearnedTurn]:
        """The turns that versions were trained on, by version: those of one version, or these in any version.
        Includes turns without content."""
        sql, values = "SELECT * FROM trained WHERE TRUE", list[int | str]()
        if version is not None:
            sql, values = f"{sql} AND version = ?", [version]
        if turns is not None:
            sql, values = f"{sql} AND turn IN ({marks(len(turns))})", [*values, *turns]
        rows = self._db.rows(f"{sql} ORDER BY version, replayed, turn", values)
        return [read(LearnedTurn, row) for row in rows]
