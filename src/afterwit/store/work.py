"""Turns as work: claimed by the judge and the learner, and committed with a verdict or in a version.

The manifests in the checkpoint folder are the truth about versions, and the store follows them. Committing is
idempotent: after a crash between a manifest's rename and its commit, it is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import orjson

from afterwit.errors import StoreError
from afterwit.lifecycle import Reason, State
from afterwit.store.database import ALL, Row, marks
from afterwit.store.moves import INCLUDED, TurnState
from afterwit.store.reading import ACCEPTED, Reading, Record
from afterwit.store.rows import columns_of, read
from afterwit.store.upkeep import Orders
from afterwit.turn import SHARED, source_of
from afterwit.verdict import Flag, ReviewRule, Verdict, Waiting
from afterwit.version import Effect, Origin, SuiteResult, Version

Stage = Literal["judge", "learn"]

WAITS_IN: dict[Stage, State] = {"judge": State.ANSWERED, "learn": State.JUDGED}

FREE = "reason IS NULL AND (owner IS NULL OR lease_until <= ?) AND retry_at <= ?"
"""Whether a turn that waits can be claimed."""
CORRECTED = "seq IN (SELECT seq FROM feedback WHERE hint IS NOT NULL OR correction IS NOT NULL)"
"""Whether a person gave a hint or a better response."""

WAITING = f"""
    SELECT t.seq, id AS turn, scope, session, moved_at AS since, oldest_version, flags, review,
        rl AS rewarded, adapter, kind = 'practice' AS practised
    FROM turns t LEFT JOIN verdicts v USING (seq)
    WHERE state = 'JUDGED' AND {FREE} AND {INCLUDED}
"""

NEWEST_WAITS_FOR_NOTHING = """
    SELECT state <> 'OPEN' AND answered_by IS NULL FROM turns LEFT JOIN next_states USING (seq)
    WHERE session = w.session AND kind = 'main' ORDER BY seq DESC LIMIT 1
"""
"""`answered_by` is known before the turn that it names is stored: until then the session has not ended."""

BEFORE_THE_JUDGE = "SELECT 1 FROM turns WHERE session = w.session AND state || '' = 'ANSWERED'"
"""The empty string makes SQLite search the session, not all turns that wait for the judge."""

ENDED = f"""
    SELECT DISTINCT session FROM waiting w
    WHERE ({NEWEST_WAITS_FOR_NOTHING}) AND NOT EXISTS ({BEFORE_THE_JUDGE})
"""

TO_TRAINED: Mapping[State, tuple[State, ...]] = {
    State.OPEN: (State.ANSWERED, State.JUDGED, State.TRAINED),
    State.JUDGED: (State.TRAINED,),
    State.ANSWERED: (State.JUDGED, State.TRAINED),
    State.SKIPPED: (State.JUDGED, State.TRAINED),
    State.TRAINED: (),
}
"""The moves of a turn that a manifest names, by its state. A next state that changed since came too late;
a power loss may have undone earlier moves."""

VERSIONS = """
    SELECT v.*, (SELECT count(*) FROM trained t WHERE t.version = v.number AND t.replayed = 0) AS trained,
        (SELECT count(*) FROM trained t WHERE t.version = v.number AND t.replayed = 1) AS replayed
    FROM versions v
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """A version, without its files."""

    number: int
    parent: int | None
    origin: Origin
    created: float
    restores: int | None
    reverts: tuple[int, ...]
    metrics: Mapping[str, float]
    committed_at: float
    published_at: float | None
    trained: int
    """Number of turns that it trained on as new ones."""
    replayed: int
    suite: SuiteResult | None = None
    """How much of what people had approved it lost; None: not measured."""
    adapter: str = SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedTurn:
    """A turn that a version was trained on."""

    version: int
    turn: str
    replayed: bool
    """Whether it had trained before."""
    effect: Effect | None
    """How the update changed it; None: not measured."""


class Work(Reading, Orders):
    """An `owner` is one worker. A turn it does not commit, extend or release in time is free for others."""

    def listening(self, notified: Callable[[], object]) -> AbstractContextManager[None]:
        """While the body runs, call `notified` from another thread when a turn begins to wait for the judge,
        whichever process moved it. Spurious calls happen. SQLite never calls it, so poll too."""
        return self._db.listening(notified)

    def claim(
        self,
        stage: Stage,
        *,
        owner: str,
        limit: int,
        lease_s: float,
        now: float,
        only: Sequence[int] | None = None,
        taught: bool = False,
    ) -> list[Record]:
        """Up to `limit` turns that wait for the stage, oldest first, held by `owner` for `lease_s` seconds.

        No turn is ever held by two owners. With `only`, a list of `seq`, other turns are not considered; with
        `taught`, those without a person's hint or correction.
        """
        among = "" if only is None else f" AND seq IN ({marks(len(only))})"
        among += f" AND {CORRECTED}" if taught else ""
        which = f"state = ? AND {FREE}{among} ORDER BY seq LIMIT ?"
        values = (WAITS_IN[stage], now, now, *(only or ()), limit)
        with self._db.transaction():
            claimable = self._states(which, values, lock=self._db.SKIP_LOCKED)
            while overtaken := [current for current in claimable if current.overtaken]:
                for current in overtaken:
                    self._unlease(current, now)
                claimable = self._states(which, values, lock=self._db.SKIP_LOCKED)
            seqs = [current.seq for current in claimable]
            self._db.execute(
                "UPDATE turns SET owner = ?, lease_until = ?, claimed_revision = revision"
                f" WHERE seq IN ({marks(len(seqs))})",
                (owner, now + lease_s, *seqs),
            )
            return self._records(seqs)

    def extend(self, turns: Sequence[str], *, owner: str, lease_s: float, now: float) -> tuple[str, ...]:
        """Hold claimed turns for `lease_s` more seconds; returns the ids that the owner still holds."""
        with self._db.transaction():
            held = self._held(turns, owner)
            self._db.execute(
                f"UPDATE turns SET lease_until = ? WHERE seq IN ({marks(len(held))})",
                (now + lease_s, *(current.seq for current in held)),
            )
        return tuple(current.id for current in held)

    def _held(self, turns: Sequence[str], owner: str) -> list[TurnState]:
        found = map(self._find_state, turns)
        return [current for current in found if current is not None and current.owner == owner]

    def release(
        self,
        turns: Sequence[str],
        *,
        owner: str,
        now: float,
        retry_in_s: float = 0.0,
        error: str | None = None,
    ) -> None:
        """Give claimed turns back, free after `retry_in_s` seconds. An `error` counts as a failed attempt."""
        with self._db.transaction():
            for current in self._held(turns, owner):
                self._db.execute(
                    "UPDATE turns SET retry_at = ?, attempts = attempts + ?, error = ? WHERE seq = ?",
                    (now + retry_in_s, error is not None, error, current.seq),
                )
                self._unlease(current, now)

    def judged(
        self,
        turn: str,
        verdict: Verdict,
        *,
        rl: bool,
        opd: bool,
        reason: Reason | None,
        owner: str,
        now: float,
        flags: Sequence[Flag] = (),
        signature: str | None = None,
        previous: str | None = None,
    ) -> bool:
        """Store a verdict and move the turn to JUDGED, or to SKIPPED if there is a `reason`; True if so.

        `flags`: what is doubtful about it. `signature`: the kind of call that it judges; `previous`: that
        of the call before, empty if there was none. A person's review of an earlier verdict is dropped.

        False if it came too late: another worker holds the turn, or its next state changed meanwhile and it
        waits to be judged again. Repeating a commit that succeeded changes nothing. Raises TurnNotFound, and
        StoreError for an imported turn without a `reason`: it cannot train.
        """
        with self._db.transaction():
            current = self._state(turn)
            if current.state is not State.ANSWERED:
                known = self._db.value("SELECT revision FROM verdicts WHERE seq = ?", (current.seq,))
                return bool(known == current.revision)
            if current.owner != owner:
                return False
            if current.outdated:
                self._unlease(current, now)
                return False
            row = columns_of(verdict, but=("hints", "votes")) | {
                "seq": current.seq,
                "hints": orjson.dumps(verdict.hints),
                "hinted": bool(verdict.hints),
                "rl": rl,
                "opd": opd,
                "revision": current.revision,
                "at": now,
                "flags": orjson.dumps(flags).decode() if flags else None,
                "review": None,
                "signature": signature,
                "previous": previous,
            }
            self._db.put("verdicts", row, key="seq")  # in place of an earlier one, and its votes
            self._db.execute("DELETE FROM votes WHERE seq = ?", (current.seq,))
            for place, vote in enumerate(verdict.votes):
                self._db.insert("votes", {"seq": current.seq, "place": place, **columns_of(vote)})
            self._move(current, State.JUDGED if reason is None else State.SKIPPED, now, reason)
        return True

    def skip(
        self,
        turns: Sequence[str],
        reason: Reason,
        *,
        now: float,
        owner: str | None = None,
        error: str | None = None,
    ) -> int:
        """End turns without training; returns how many. With an `owner`, only those it still holds.

        A turn that already trained or ended stays as it is. Raises TurnNotFound.
        """
        moved = 0
        with self._db.transaction():
            for current in map(self._state, turns):
                if not current.ended and owner in (None, current.owner):
                    self._move(current, State.SKIPPED, now, reason, error)
                    moved += 1
        return moved

    def in_update(self, *, now: float) -> int:
        """How many turns a learner holds."""
        held = "state = 'JUDGED' AND reason IS NULL AND owner IS NOT NULL AND lease_until > ?"
        return int(self._db.value(f"SELECT count(*) FROM turns WHERE {held}", (now,)))

    def tried_later(self, *, now: float) -> int:
        """How many judged turns a learner gave back after a failure, and may not claim yet."""
        given_back = "state = 'JUDGED' AND reason IS NULL AND retry_at > ?"
        return int(self._db.value(f"SELECT count(*) FROM turns WHERE {given_back}", (now,)))

    def waiting(self, *, now: float) -> list[Waiting]:
        """The judged turns that a learner could claim now, oldest first, including those that wait for a
        person.

        A session has ended if no request follows its newest turn, that turn waits for none (the client ended
        the session, nothing answered for a day, or feedback replaced the reply), and none of its turns waits
        for the judge.
        """
        rows = self._db.rows(
            f"WITH waiting AS MATERIALIZED ({WAITING}), ended AS MATERIALIZED ({ENDED})"
            " SELECT *, session IN (SELECT session FROM ended) AS ended FROM waiting ORDER BY seq",
            (now, now),
        )
        return [
            read(Waiting, row, source=source_of(row["scope"]), accepted=row["review"] == ACCEPTED)
            for row in rows
        ]

    def withheld(self, rule: ReviewRule, *, now: float, limit: int | None = None) -> list[Record]:
        """The waiting turns that must not train before a person accepts them, oldest first."""
        found = [
            turn.turn
            for turn in self.waiting(now=now)
            if rule.withholds(turn.flags, accepted=turn.accepted, rewarded=turn.rewarded)
        ]
        return [self.turn(turn) for turn in found[:limit]]

    def leading(self) -> AbstractContextManager[None]:
        """While the body runs, no other process learns over the store, whichever home it has. Raises
        AlreadyRunning if one does."""
        return self._db.leading()

    def commit_version(self, version: Version, *, now: float) -> None:
        """Adopt a manifest: its new turns become TRAINED, and so do those of versions that it brings back;
        the turns of versions it reverts end. What a later known version reverts stays reverted.

        Raises StoreError if the number is known with other turns.
        """
        with self._db.alone():
            if self._knows(version):
                return
            self._write_version(version, now)
            for turn in version.turns:
                if (current := self._find_state(turn)) is not None:
                    self._train(current, now)
            self._settle({version.number, *version.reverts, *version.returns}, now)
            for session in version.forgets:
                self._forget(session, now=now)
        if version.forgets:
            self._db.wipe()

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

    def _in_weights(self, turn: str, gone: Collection[int]) -> bool:
        rows = self._db.rows("SELECT version FROM trained WHERE turn = ? AND replayed = 0", (turn,))
        return any(row["version"] not in gone for row in rows)

    def reconcile(
        self, manifests: Sequence[Version], *, now: float, error: str | None = None
    ) -> tuple[str, ...]:
        """Make the store agree with every manifest of the checkpoint folder. Called when a learner starts.
        Returns the turns that a dead learner held, in an update that no manifest names.

        Unknown manifests are committed. A version that is neither among them nor an ancestor of one, or that
        names other turns than its manifest, is lost: its turns go back to JUDGED (to ANSWERED if their next
        state changed since), and turns that a lost rollback reverted are TRAINED again. Leases of an earlier
        learner are freed; an `error`, its cause of death, counts as a failed attempt.
        """
        with self._db.alone():
            for row in self._lost(manifests):
                self._lose(row, now)
            for manifest in sorted(manifests, key=lambda m: m.number):
                if not self._knows(manifest):
                    self.commit_version(manifest, now=now)
            held = "state = 'JUDGED' AND owner IS NOT NULL"
            self._db.execute(
                f"UPDATE turns SET attempts = attempts + ?, error = coalesce(?, error) WHERE {held}",
                (error is not None, error),
            )
            freed = self._states(f"{held} ORDER BY seq")
            for current in freed:
                self._unlease(current, now)
        self._db.wipe()  # a killed learner may not have come to that
        return tuple(current.id for current in freed)

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

    def _lose(self, row: Row, now: float) -> None:
        """Remove a lost version. Its turns wait again, which pruned ones cannot."""
        found = [self._find_state(turn) for turn in self._trained_by(row["number"])]
        self._db.execute("DELETE FROM trained WHERE version = ?", (row["number"],))
        self._db.execute("DELETE FROM versions WHERE number = ?", (row["number"],))
        self._settle({*orjson.loads(row["reverts"]), *orjson.loads(row["returns"])}, now)
        gone = self._gone()
        for current in found:
            if current is None or current.state is not State.TRAINED or self._in_weights(current.id, gone):
                continue
            if self._has_content(current):
                self._untrain(current, now)

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
