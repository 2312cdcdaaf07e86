"""Turns as work: claimed by the judge and the learner, and what waits for the learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import orjson

from afterwit.lifecycle import Reason, State
from afterwit.store.database import marks
from afterwit.store.moves import TurnState
from afterwit.store.reading import ACCEPTED, Reading
from afterwit.store.records import Record
from afterwit.store.rows import columns_of, read
from afterwit.teaching.review import Rule
from afterwit.turn import source_of
from afterwit.verdict import Flag, Verdict, Vote, Waiting

Stage = Literal["judge", "learn"]

WAITS_IN: dict[Stage, State] = {"judge": State.ANSWERED, "learn": State.JUDGED}

FREE = "reason IS NULL AND (owner IS NULL OR lease_until <= ?) AND retry_at <= ?"
"""Whether a turn that waits can be claimed."""

WAITING = f"""
    SELECT t.seq, id AS turn, scope, session, moved_at AS since, oldest_version, flags, review,
        rl AS rewarded, adapter, kind = 'practice' AS practised
    FROM turns t LEFT JOIN verdicts v USING (seq)
    WHERE state = 'JUDGED' AND {FREE} AND session NOT IN (SELECT session FROM excluded)
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


class Leases(Reading):
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
    ) -> list[Record]:
        """Up to `limit` turns that wait for the stage, oldest first, held by `owner` for `lease_s` seconds.

        No turn is ever held by two owners. With `only`, a list of `seq`, other turns are not considered.
        """
        among = "" if only is None else f" AND seq IN ({marks(len(only))})"
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
        IllegalMove for an imported turn without a `reason`: it cannot train.
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
            self._put_verdict(row, verdict.votes)
            self._move(current, State.JUDGED if reason is None else State.SKIPPED, now, reason)
        return True

    def _put_verdict(self, row: Mapping[str, Any], votes: Sequence[Vote]) -> None:
        """In place of an earlier one, and its votes."""
        self._db.put("verdicts", row, key="seq")
        self._db.execute("DELETE FROM votes WHERE seq = ?", (row["seq"],))
        for place, vote in enumerate(votes):
            self._db.insert("votes", {"seq": row["seq"], "place": place, **columns_of(vote)})

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

    def withheld(self, rule: Rule, *, now: float, limit: int | None = None) -> list[Record]:
        """The waiting turns that must not train before a person accepts them, oldest first."""
        found = [
            turn.turn
            for turn in self.waiting(now=now)
            if rule.withholds(turn.flags, accepted=turn.accepted, rewarded=turn.rewarded)
        ]
        return [self.turn(turn) for turn in found[:limit]]
