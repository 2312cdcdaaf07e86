"""Turns as work: claimed by the judge and the learner, and what waits for the learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import orjson

from afterwit.lifecycle import Reason, State
from afterwit.store.database import Part, marks
from afterwit.store.moves import TurnState, find_turn_state, move, turn_state_of, turn_states, unlease
from afterwit.store.reading import ACCEPTED, records_by_seq
from afterwit.store.records import Record
from afterwit.store.rows import columns_of, read, read_flags
from afterwit.turn import Waiting, source_of
from afterwit.verdict import Flag, Verdict

Stage = Literal["judge", "learn"]

WAITS_IN: dict[Stage, State] = {"judge": State.ANSWERED, "learn": State.JUDGED}
"""The state in which turns wait for each stage."""

WAITING = """
    SELECT t.seq, id AS turn, scope, session, moved_at AS since, oldest_version, flags, review,
        rl AS rewarded, adapter
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


class Leases(Part):
    """An `owner` is one worker. A turn it does not commit, extend or release in time is free for others."""

    def listening(self, notified: Callable[[], object]) -> AbstractContextManager[None]:
        """While the body runs, call `notified` from another thread when a turn begins to wait for the judge,
        whichever process moved it. Spurious calls happen. SQLite never calls it, so poll too."""
        return self._database.listening(notified)

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
        """Up to `limit` turns that wait for the stage, oldest first, held by `owner` for `lease_s` seconds.

        No turn is ever held by two owners. With `only`, a list of `seq`, other turns are not considered.
        """
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
        return turn_states(
            self._database,
            "state = ? AND reason IS NULL AND (owner IS NULL OR lease_until <= ?) AND retry_at <= ?"
            f"{among} ORDER BY seq LIMIT ?",
            (state, now, now, *(only or ()), limit),
            lock=self._database.SKIP_LOCKED,
        )

    def extend(self, turns: Sequence[str], *, owner: str, lease_s: float, now: float) -> tuple[str, ...]:
        """Hold claimed turns for `lease_s` more seconds; returns the ids that the owner still holds."""
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
        """Give claimed turns back, free after `retry_in_s` seconds. An `error` counts as a failed attempt."""
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
        """Store a verdict and move the turn to JUDGED, or to SKIPPED if there is a `reason`; True if so.

        `flags`: what is doubtful about it. `signature`: the kind of call that it judges; `previous`: that
        of the call before, empty if there was none. A person's review of an earlier verdict is dropped.

        False if it came too late: another worker holds the turn, or its next state changed meanwhile and it
        waits to be judged again. Repeating a commit that succeeded changes nothing. Raises TurnNotFound, and
        IllegalMove for an imported turn without a `reason`: it cannot train.
        """
        with self._database.transaction():
            current = turn_state_of(self._database, turn)
            if current.state is not State.ANSWERED or current.owner != owner:
                return self._was_judged(current)
            if current.outdated:
                unlease(self._database, current, now=now)
                return False
            more = {"rl": rl, "opd": opd, "at": now, "signature": signature, "previous": previous}
            more["flags"] = orjson.dumps(flags).decode() if flags else None
            self._write_verdict(current, verdict, more)
            state = State.JUDGED if reason is None else State.SKIPPED
            move(self._database, current, state, now=now, reason=reason)
        return True

    def _was_judged(self, current: TurnState) -> bool:
        row = self._database.row("SELECT revision FROM verdicts WHERE seq = ?", (current.seq,))
        return current.state is not State.ANSWERED and row is not None and row["revision"] == current.revision

    def _write_verdict(self, current: TurnState, verdict: Verdict, more: Mapping[str, Any]) -> None:
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
            self._database.insert("votes", {"seq": current.seq, "place": place, **columns_of(vote)})

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
        with self._database.transaction():
            for current in (turn_state_of(self._database, turn) for turn in turns):
                if not current.ended and owner in (None, current.owner):
                    move(self._database, current, State.SKIPPED, now=now, reason=reason, error=error)
                    moved += 1
        return moved

    def in_update(self, *, now: float) -> int:
        """How many turns a learner holds."""
        row = self._database.rows(
            "SELECT count(*) AS held FROM turns WHERE state = 'JUDGED' AND reason IS NULL"
            " AND owner IS NOT NULL AND lease_until > ?",
            (now,),
        )[0]
        return int(row["held"])

    def waiting(self, *, now: float) -> list[Waiting]:
        """The judged turns that a learner could claim now, oldest first, including those that wait for a
        person.

        A session has ended if no request follows its newest turn, that turn waits for none (the client ended
        the session, nothing answered for a day, or feedback replaced the reply), and none of its turns waits
        for the judge.
        """
        rows = self._database.rows(
            f"WITH waiting AS MATERIALIZED ({WAITING}), ended AS MATERIALIZED ({ENDED})"
            " SELECT *, session IN (SELECT session FROM ended) AS ended FROM waiting ORDER BY seq",
            (now, now),
        )
        return [
            read(
                Waiting,
                row,
                source=source_of(row["scope"]),
                flags=read_flags(row["flags"]),
                accepted=row["review"] == ACCEPTED,
            )
            for row in rows
        ]
