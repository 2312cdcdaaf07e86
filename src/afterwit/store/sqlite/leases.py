"""How stages take work: a claim with a lease, a commit, a release with back-off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import orjson

from afterwit.core.lifecycle import Reason, State
from afterwit.core.verdict import Verdict
from afterwit.store.rows import Record
from afterwit.store.sqlite.codec import vote_columns
from afterwit.store.sqlite.database import marks
from afterwit.store.sqlite.moves import COLUMNS, Life, find_life, life_of, move, unlease
from afterwit.store.sqlite.part import Part
from afterwit.store.sqlite.reading import records_by_seq

Stage = Literal["judge", "learn"]
WAITS_IN: dict[Stage, State] = {"judge": State.ANSWERED, "learn": State.JUDGED}
"""In which state a stage finds its work."""


class Leases(Part):
    """An owner names one worker. What it did not commit, extend or release in time, another may claim."""

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
        """Up to `limit` turns that wait for the stage, oldest first, held by `owner` for `lease_s`.

        `only`: of these turns, by `seq`; those that somebody took or answered meanwhile are left out.
        """
        state = WAITS_IN[stage]
        with self._database.transaction():
            while overtaken := [life for life in self._claimable(state, limit, now, only) if life.overtaken]:
                for life in overtaken:
                    unlease(self._database, life, now=now)
            seqs = [life.seq for life in self._claimable(state, limit, now, only)]
            self._database.execute(
                "UPDATE turns SET owner = ?, lease_until = ?, claimed_revision = revision"
                f" WHERE seq IN ({marks(len(seqs))})",
                (owner, now + lease_s, *seqs),
            )
            return records_by_seq(self._database, seqs)

    def _claimable(self, state: State, limit: int, now: float, only: Sequence[int] | None) -> list[Life]:
        among = "" if only is None else f" AND seq IN ({marks(len(only))})"
        found = self._database.rows(
            f"SELECT {COLUMNS} FROM turns WHERE state = ? AND reason IS NULL"
            f" AND (owner IS NULL OR lease_until <= ?) AND retry_at <= ?{among} ORDER BY seq LIMIT ?",
            (state, now, now, *(only or ()), limit),
        )
        return [Life.of(row) for row in found]

    def free_leases(self, stage: Stage, *, now: float, error: str | None = None) -> tuple[str, ...]:
        """Take back all leases of a stage whose workers are known to be gone; the turns, by their arrival.

        An `error` says what they died of: it counts as a failed attempt.
        """
        held = "state = ? AND owner IS NOT NULL"
        with self._database.transaction():
            self._database.execute(
                f"UPDATE turns SET attempts = attempts + ?, error = coalesce(?, error) WHERE {held}",
                (error is not None, error, WAITS_IN[stage]),
            )
            found = self._database.rows(
                f"SELECT {COLUMNS} FROM turns WHERE {held} ORDER BY seq", (WAITS_IN[stage],)
            )
            for row in found:
                unlease(self._database, Life.of(row), now=now)
        return tuple(row["id"] for row in found)

    def extend(self, turns: Sequence[str], *, owner: str, lease_s: float, now: float) -> tuple[str, ...]:
        """Hold on to a claim; the turns that are still the owner's."""
        with self._database.transaction():
            held = self._held(turns, owner)
            self._database.execute(
                f"UPDATE turns SET lease_until = ? WHERE seq IN ({marks(len(held))})",
                (now + lease_s, *(life.seq for life in held)),
            )
        return tuple(life.id for life in held)

    def _held(self, turns: Sequence[str], owner: str) -> list[Life]:
        lives = (find_life(self._database, turn) for turn in turns)
        return [life for life in lives if life is not None and life.owner == owner]

    def release(
        self,
        turns: Sequence[str],
        *,
        owner: str,
        now: float,
        retry_in_s: float = 0.0,
        error: str | None = None,
    ) -> None:
        """Give claimed turns back, claimable after `retry_in_s`; an `error` counts as a failed attempt."""
        with self._database.transaction():
            for life in self._held(turns, owner):
                self._database.execute(
                    "UPDATE turns SET retry_at = ?, attempts = attempts + ?, error = ? WHERE seq = ?",
                    (now + retry_in_s, error is not None, error, life.seq),
                )
                unlease(self._database, life, now=now)

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
    ) -> bool:
        """Store a verdict, move the turn to JUDGED, or to SKIPPED for a `reason`; True where it stands.

        False where it came too late: another worker holds the turn, or its next state changed meanwhile
        and it waits to be judged again. Repeating a commit that succeeded changes nothing.
        """
        with self._database.transaction():
            life = life_of(self._database, turn)
            if life.state is not State.ANSWERED or life.owner != owner:
                return self._stands(life)
            if life.outdated:
                unlease(self._database, life, now=now)
                return False
            self._write_verdict(life, verdict, rl=rl, opd=opd, now=now)
            move(
                self._database,
                life,
                State.JUDGED if reason is None else State.SKIPPED,
                now=now,
                reason=reason,
            )
        return True

    def _stands(self, life: Life) -> bool:
        row = self._database.row("SELECT revision FROM verdicts WHERE seq = ?", (life.seq,))
        return life.state is not State.ANSWERED and row is not None and row["revision"] == life.revision

    def _write_verdict(self, life: Life, verdict: Verdict, *, rl: bool, opd: bool, now: float) -> None:
        row = {
            "seq": life.seq,
            "reward": verdict.reward,
            "source": verdict.source,
            "hints": orjson.dumps(verdict.hints),
            "hinted": bool(verdict.hints),
            "rl": rl,
            "opd": opd,
            "revision": life.revision,
            "at": now,
        }
        self._database.insert("verdicts", row, replace=True)
        self._database.execute("DELETE FROM votes WHERE seq = ?", (life.seq,))
        for place, vote in enumerate(verdict.votes):
            self._database.insert("votes", vote_columns(life.seq, place, vote))

    def skip(
        self,
        turns: Sequence[str],
        reason: Reason,
        *,
        now: float,
        owner: str | None = None,
        error: str | None = None,
    ) -> int:
        """End turns without training; how many. With an `owner` only those it still holds.

        A turn that trained or was skipped already stays as it is.
        """
        moved = 0
        with self._database.transaction():
            for life in (life_of(self._database, turn) for turn in turns):
                if life.state in (State.TRAINED, State.SKIPPED) or (
                    owner is not None and life.owner != owner
                ):
                    continue
                move(self._database, life, State.SKIPPED, now=now, reason=reason, error=error)
                moved += 1
        return moved
