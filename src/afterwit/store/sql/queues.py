"""The port's `Leases` in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from afterwit.lifecycle import Reason, State
from afterwit.store.port import WAITS_IN, Stage
from afterwit.store.records import Record
from afterwit.store.sql.database import Component, marks
from afterwit.store.sql.reading import records_by_seq
from afterwit.store.sql.rows import ACCEPTED, read_flags, vote_columns
from afterwit.store.sql.turn_state import COLUMNS, TurnState, find_turn_state, move, turn_state_of, unlease
from afterwit.turn import Waiting, source_of
from afterwit.verdict import Flag, Verdict


class SqlLeases(Component):
    def claim(
        self,
        stage: Stage,
        *,
        owner: str,
        limit: int,
        lease_s: float,
        now: float,
        only: Sequence[int] | None = None,
    ) -> list[Record]:
        state = WAITS_IN[stage]
        with self._database.transaction():
            while overtaken := [
                current for current in self._claimable(state, limit, now, only) if current.overtaken
            ]:
                for current in overtaken:
                    unlease(self._database, current, now=now)
            seqs = [current.seq for current in self._claimable(state, limit, now, only)]
            self._database.execute(
                "UPDATE turns SET owner = ?, lease_until = ?, claimed_revision = revision"
                f" WHERE seq IN ({marks(len(seqs))})",
                (owner, now + lease_s, *seqs),
            )
            return records_by_seq(self._database, seqs)

    def _claimable(self, state: State, limit: int, now: float, only: Sequence[int] | None) -> list[TurnState]:
        among = "" if only is None else f" AND seq IN ({marks(len(only))})"
        found = self._database.rows(
            f"SELECT {COLUMNS} FROM turns WHERE state = ? AND reason IS NULL"
            f" AND (owner IS NULL OR lease_until <= ?) AND retry_at <= ?{among} ORDER BY seq LIMIT ?"
            f"{self._database.UNLOCKED}",
            (state, now, now, *(only or ()), limit),
        )
        return [TurnState.of(row) for row in found]

    def extend(self, turns: Sequence[str], *, owner: str, lease_s: float, now: float) -> tuple[str, ...]:
        with self._database.transaction():
            held = self._held(turns, owner)
            self._database.execute(
                f"UPDATE turns SET lease_until = ? WHERE seq IN ({marks(len(held))})",
                (now + lease_s, *(current.seq for current in held)),
            )
        return tuple(current.id for current in held)

    def _held(self, turns: Sequence[str], owner: str) -> list[TurnState]:
        found = (find_turn_state(self._database, turn) for turn in turns)
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
        with self._database.transaction():
            for current in self._held(turns, owner):
                self._database.execute(
                    "UPDATE turns SET retry_at = ?, attempts = attempts + ?, error = ? WHERE seq = ?",
                    (now + retry_in_s, error is not None, error, current.seq),
                )
                unlease(self._database, current, now=now)

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
        with self._database.transaction():
            current = turn_state_of(self._database, turn)
            if current.state is not State.ANSWERED or current.owner != owner:
                return self._holds(current)
            if current.outdated:
                unlease(self._database, current, now=now)
                return False
            more = {"flags": orjson.dumps(flags) if flags else None, "rl": rl, "opd": opd, "at": now}
            self._write_verdict(current, verdict, {**more, "signature": signature, "previous": previous})
            move(
                self._database,
                current,
                State.JUDGED if reason is None else State.SKIPPED,
                now=now,
                reason=reason,
            )
        return True

    def _holds(self, current: TurnState) -> bool:
        row = self._database.row("SELECT revision FROM verdicts WHERE seq = ?", (current.seq,))
        return current.state is not State.ANSWERED and row is not None and row["revision"] == current.revision

    def _write_verdict(self, current: TurnState, verdict: Verdict, more: Mapping[str, object]) -> None:
        row = {
            "seq": current.seq,
            "reward": verdict.reward,
            "source": verdict.source,
            "hints": orjson.dumps(verdict.hints),
            "hinted": bool(verdict.hints),
            "review": None,
            "revision": current.revision,
            **more,
        }
        self._database.put("verdicts", row, key="seq")
        self._database.execute("DELETE FROM votes WHERE seq = ?", (current.seq,))
        for place, vote in enumerate(verdict.votes):
            self._database.insert("votes", vote_columns(current.seq, place, vote))

    def skip(
        self,
        turns: Sequence[str],
        reason: Reason,
        *,
        now: float,
        owner: str | None = None,
        error: str | None = None,
    ) -> int:
        moved = 0
        with self._database.transaction():
            for current in (turn_state_of(self._database, turn) for turn in turns):
                if current.state in (State.TRAINED, State.SKIPPED) or (
                    owner is not None and current.owner != owner
                ):
                    continue
                move(self._database, current, State.SKIPPED, now=now, reason=reason, error=error)
                moved += 1
        return moved


WAITING = """
    SELECT t.seq, id, scope, session, moved_at, oldest_version, flags, review, rl, adapter
    FROM turns t LEFT JOIN verdicts v USING (seq)
    WHERE state = 'JUDGED' AND reason IS NULL AND (owner IS NULL OR lease_until <= ?) AND retry_at <= ?
    AND session NOT IN (SELECT session FROM excluded)
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


class SqlLearnerQueue(Component):
    def in_update(self, *, now: float) -> int:
        row = self._database.rows(
            "SELECT count(*) AS held FROM turns WHERE state = 'JUDGED' AND reason IS NULL"
            " AND owner IS NOT NULL AND lease_until > ?",
            (now,),
        )[0]
        return int(row["held"])

    def waiting(self, *, now: float) -> list[Waiting]:
        rows = self._database.rows(
            f"WITH waiting AS MATERIALIZED ({WAITING}), ended AS MATERIALIZED ({ENDED})"
            " SELECT *, session IN (SELECT session FROM ended) AS ended FROM waiting ORDER BY seq",
            (now, now),
        )
        return [
            Waiting(
                seq=row["seq"],
                turn=row["id"],
                session=row["session"],
                since=row["moved_at"],
                oldest_version=row["oldest_version"],
                ended=bool(row["ended"]),
                source=source_of(row["scope"]),
                flags=read_flags(row["flags"]),
                accepted=row["review"] == ACCEPTED,
                rewarded=bool(row["rl"]),
                adapter=row["adapter"],
            )
            for row in rows
        ]
