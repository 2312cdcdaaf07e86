"""The only place where a turn's state changes, as core's table of moves permits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from afterwit.errors import IllegalMove, TurnNotFound
from afterwit.lifecycle import REOPENED_BY_NEXT_STATE, Reason, State, check_move
from afterwit.store.sql.database import Database, Row
from afterwit.turn import Kind


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
    """Whether it was not sampled here."""

    @classmethod
    def of(cls, row: Row) -> Self:
        return cls(
            seq=row["seq"],
            id=row["id"],
            kind=Kind(row["kind"]),
            state=State(row["state"]),
            reason=None if row["reason"] is None else Reason(row["reason"]),
            revision=row["revision"],
            owner=row["owner"],
            lease_until=row["lease_until"],
            claimed_revision=row["claimed_revision"],
            imported=bool(row["imported"]),
        )

    def leased(self, now: float) -> bool:
        return self.owner is not None and self.lease_until is not None and self.lease_until > now

    @property
    def outdated(self) -> bool:
        """Whether the next state changed after the turn was claimed."""
        return self.claimed_revision is not None and self.claimed_revision != self.revision

    @property
    def overtaken(self) -> bool:
        """Whether the next state changed after the verdict, while a learner held the turn."""
        return self.state is State.JUDGED and self.outdated

    def takes_next_state(self, now: float) -> bool:
        """Whether the turn is judged (again) with a new next state. The learner keeps what it holds."""
        if self.state is State.JUDGED:
            return not self.leased(now)
        if self.state is not State.SKIPPED:
            return self.state in (State.OPEN, State.ANSWERED)
        found_main = self.reason is Reason.UNKNOWN_BRANCH and self.kind is Kind.MAIN
        return self.reason in REOPENED_BY_NEXT_STATE or found_main


COLUMNS = "seq, id, kind, state, reason, revision, owner, lease_until, claimed_revision, imported"


def find_turn_state(database: Database, turn: str) -> TurnState | None:
    """Within a transaction: nobody else moves the turn until it ends."""
    row = database.row(f"SELECT {COLUMNS} FROM turns WHERE id = ?{database.LOCKED}", (turn,))
    return None if row is None else TurnState.of(row)


def turn_state_of(database: Database, turn: str) -> TurnState:
    """Raises TurnNotFound."""
    current = find_turn_state(database, turn)
    if current is None:
        raise TurnNotFound(f"there is no turn {turn}")
    return current


def move(
    database: Database,
    current: TurnState,
    new: State,
    *,
    now: float,
    reason: Reason | None = None,
    error: str | None = None,
) -> None:
    """Raises IllegalMove if core's table has no such move, or for an imported turn on its way to the learner.

    Ends the lease and forgets failed attempts.
    """
    check_move(current.id, current.state, new)
    if current.imported and new is State.JUDGED:
        raise IllegalMove(f"turn {current.id} was not sampled here, so it cannot wait to train")
    database.execute(
        "UPDATE turns SET state = ?, reason = ?, error = ?, moved_at = ?, owner = NULL, lease_until = NULL,"
        " claimed_revision = NULL, attempts = 0, retry_at = 0 WHERE seq = ?",
        (new, reason, error, now, current.seq),
    )
    if new is State.ANSWERED:
        database.tell()


def is_excluded(database: Database, current: TurnState) -> bool:
    """Whether a person said that the turn's session never trains."""
    sql = "SELECT 1 FROM turns JOIN excluded USING (session) WHERE seq = ?"
    return database.row(sql, (current.seq,)) is not None


def unlease(database: Database, current: TurnState, *, now: float) -> None:
    """Give a claimed turn back. If its next state changed after its verdict, it is judged again; a turn of a
    session that was excluded meanwhile ends."""
    if is_excluded(database, current):
        move(database, current, State.SKIPPED, now=now, reason=Reason.EXCLUDED)
        return
    if current.overtaken:
        move(database, current, State.ANSWERED, now=now)
        return
    database.execute(
        "UPDATE turns SET owner = NULL, lease_until = NULL, claimed_revision = NULL WHERE seq = ?",
        (current.seq,),
    )


def skip_open(database: Database, which: str, value: float | str, *, now: float) -> int:
    """Skip the OPEN turns that the condition `which` holds for, and return their number."""
    with database.transaction():
        rows = database.rows(
            f"SELECT {COLUMNS} FROM turns WHERE state = 'OPEN' AND {which} ORDER BY seq{database.LOCKED}",
            (value,),
        )
        for row in rows:
            move(database, TurnState.of(row), State.SKIPPED, now=now, reason=Reason.NO_NEXT_STATE)
    return len(rows)
