"""The base of all parts of the store, and the only place where a turn's state changes (`lifecycle.MOVES`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from afterwit.errors import StoreError, TurnNotFound
from afterwit.lifecycle import MOVES, REOPENED_BY_NEXT_STATE, Reason, State
from afterwit.store.database import Database
from afterwit.store.rows import read
from afterwit.turn import Kind

STATE_COLUMNS = "seq, id, kind, state, reason, revision, owner, lease_until, claimed_revision, imported"

INCLUDED = "session NOT IN (SELECT session FROM excluded)"
"""Whether a turn's session is not excluded from training."""

UNLEASED = "owner = NULL, lease_until = NULL, claimed_revision = NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnState:
    """The columns of `turns` that moves read."""

    seq: int
    id: str
    kind: Kind
    state: State
    reason: Reason | None
    revision: int
    owner: str | None
    lease_until: float | None
    claimed_revision: int | None
    imported: bool

    def leased(self, now: float) -> bool:
        return self.owner is not None and self.lease_until is not None and self.lease_until > now

    @property
    def ended(self) -> bool:
        return self.state in (State.TRAINED, State.SKIPPED)

    @property
    def outdated(self) -> bool:
        """Whether the next state changed after the turn was claimed."""
        return self.claimed_revision is not None and self.claimed_revision != self.revision

    @property
    def overtaken(self) -> bool:
        """Whether the next state changed after the verdict, while a learner held the turn."""
        return self.state is State.JUDGED and self.outdated

    def takes_next_state(self, now: float) -> bool:
        """Whether a new next state has the turn judged (again). A turn that the learner holds is not, nor is
        practice, which nothing follows."""
        if self.kind is Kind.PRACTICE:
            return False
        if self.state is State.JUDGED:
            return not self.leased(now)
        if self.state is not State.SKIPPED:
            return self.state in (State.OPEN, State.ANSWERED)
        found_main = self.reason is Reason.UNKNOWN_BRANCH and self.kind is Kind.MAIN
        return self.reason in REOPENED_BY_NEXT_STATE or found_main


class Part:
    """A part of the store: some of its methods, over the connection that all parts share."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def _states(self, which: str, values: tuple[Any, ...] = (), *, lock: str = "") -> list[TurnState]:
        """The turns that a condition holds for. `lock` is the database's FOR_UPDATE or SKIP_LOCKED."""
        rows = self._db.rows(f"SELECT {STATE_COLUMNS} FROM turns WHERE {which}{lock}", values)
        return [read(TurnState, row) for row in rows]

    def _find_state(self, turn: str) -> TurnState | None:
        """Within a transaction: no one else moves the turn until it ends."""
        return next(iter(self._states("id = ?", (turn,), lock=self._db.FOR_UPDATE)), None)

    def _state(self, turn: str) -> TurnState:
        """As `_find_state`. Raises TurnNotFound."""
        if (current := self._find_state(turn)) is None:
            raise TurnNotFound(f"there is no turn {turn}")
        return current

    def _move(
        self,
        current: TurnState,
        new: State,
        now: float,
        reason: Reason | None = None,
        error: str | None = None,
        *,
        revised: bool = False,
    ) -> State:
        """Move a turn, end its lease and forget failed attempts; returns its new state. `revised`: because
        its next state has changed.

        Raises StoreError for a move that is not in the table, or of an imported turn to the learner.
        """
        if new not in MOVES[current.state]:
            raise StoreError(f"turn {current.id} cannot go from {current.state} to {new}")
        if current.imported and new is State.JUDGED:
            raise StoreError(f"turn {current.id} was not sampled here, so it cannot wait to train")
        self._db.execute(
            f"UPDATE turns SET state = ?, reason = ?, error = ?, moved_at = ?, {UNLEASED}, attempts = 0,"
            " retry_at = 0, revision = revision + ? WHERE seq = ?",
            (new, reason, error, now, revised, current.seq),
        )
        if new is State.ANSWERED:
            self._db.notify()
        return new

    def _has_content(self, current: TurnState) -> bool:
        return self._db.row("SELECT 1 FROM contents WHERE seq = ?", (current.seq,)) is not None

    def _is_excluded(self, current: TurnState) -> bool:
        sql = "SELECT 1 FROM turns JOIN excluded USING (session) WHERE seq = ?"
        return self._db.row(sql, (current.seq,)) is not None

    def _unlease(self, current: TurnState, now: float) -> None:
        """Give a claimed turn back. It is judged again if its next state changed after its verdict, and ends
        if its session was excluded meanwhile."""
        if self._is_excluded(current):
            self._move(current, State.SKIPPED, now, Reason.EXCLUDED)
        elif current.overtaken:
            self._move(current, State.ANSWERED, now)
        else:
            self._db.execute(f"UPDATE turns SET {UNLEASED} WHERE seq = ?", (current.seq,))

    def _skip_open(self, which: str, value: float | str, now: float) -> int:
        """Skip the OPEN turns that a condition holds for; returns how many."""
        with self._db.transaction():
            lock = self._db.FOR_UPDATE
            found = self._states(f"state = 'OPEN' AND {which} ORDER BY seq", (value,), lock=lock)
            for current in found:
                self._move(current, State.SKIPPED, now, Reason.NO_NEXT_STATE)
        return len(found)
