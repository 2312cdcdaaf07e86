"""The only place where a turn's state changes, as `lifecycle.MOVES` permits."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.errors import IllegalMove, TurnNotFound
from afterwit.lifecycle import REOPENED_BY_NEXT_STATE, Reason, State, check_move
from afterwit.store.database import Database
from afterwit.store.rows import read
from afterwit.turn import Kind

COLUMNS = "seq, id, kind, state, reason, revision, owner, lease_until, claimed_revision, imported"


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
        """Whether a new next state has the turn judged (again). A turn that the learner holds is not."""
        if self.state is State.JUDGED:
            return not self.leased(now)
        if self.state is not State.SKIPPED:
            return self.state in (State.OPEN, State.ANSWERED)
        found_main = self.reason is Reason.UNKNOWN_BRANCH and self.kind is Kind.MAIN
        return self.reason in REOPENED_BY_NEXT_STATE or found_main


def turn_states(database: Database, which: str, values: tuple[object, ...], *, lock: str) -> list[TurnState]:
    """The turns that a condition holds for. `lock` is the database's FOR_UPDATE, SKIP_LOCKED, or empty."""
    rows = database.rows(f"SELECT {COLUMNS} FROM turns WHERE {which}{lock}", values)
    return [read(TurnState, row) for row in rows]


def find_turn_state(database: Database, turn: str) -> TurnState | None:
    """Within a transaction: no one else moves the turn until it ends."""
    return next(iter(turn_states(database, "id = ?", (turn,), lock=database.FOR_UPDATE)), None)


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
    """Move a turn, end its lease and forget failed attempts.

    Raises IllegalMove for a move that is not in the table, or of an imported turn to the learner.
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
        database.notify()


def is_excluded(database: Database, current: TurnState) -> bool:
    """Whether a person excluded the turn's session from training."""
    sql = "SELECT 1 FROM turns JOIN excluded USING (session) WHERE seq = ?"
    return database.row(sql, (current.seq,)) is not None


def unlease(database: Database, current: TurnState, *, now: float) -> None:
    """Give a claimed turn back. It is judged again if its next state changed after its verdict, and ends if
    its session was excluded meanwhile."""
    if is_excluded(database, current):
        move(database, current, State.SKIPPED, now=now, reason=Reason.EXCLUDED)
    elif current.overtaken:
        move(database, current, State.ANSWERED, now=now)
    else:
        database.execute(
            "UPDATE turns SET owner = NULL, lease_until = NULL, claimed_revision = NULL WHERE seq = ?",
            (current.seq,),
        )


def skip_open(database: Database, which: str, value: float | str, *, now: float) -> int:
    """Skip the OPEN turns that a condition holds for; returns how many."""
    with database.transaction():
        found = turn_states(
            database, f"state = 'OPEN' AND {which} ORDER BY seq", (value,), lock=database.FOR_UPDATE
        )
        for current in found:
            move(database, current, State.SKIPPED, now=now, reason=Reason.NO_NEXT_STATE)
    return len(found)
