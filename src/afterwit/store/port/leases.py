"""How the judge and the learner take work, and give it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from afterwit.core.judged_turn import Waiting
from afterwit.core.lifecycle import Reason, State
from afterwit.core.teaching import Flag
from afterwit.core.verdict import Verdict
from afterwit.store.records import Record

Stage = Literal["judge", "learn"]
WAITS_IN: dict[Stage, State] = {"judge": State.ANSWERED, "learn": State.JUDGED}
"""The state in which turns wait for each stage."""


class Leases(Protocol):
    """An `owner` is one worker. A turn it does not commit, extend or release in time is free for others."""

    def listening(self, heard: Callable[[], object]) -> AbstractContextManager[None]:
        """While the body runs, `heard` is called in another thread when a turn begins to wait for the judge,
        whichever process moved it. It may be called without reason; a store that cannot tell never calls it:
        ask from time to time all the same."""
        ...

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
        ...

    def extend(self, turns: Sequence[str], *, owner: str, lease_s: float, now: float) -> tuple[str, ...]:
        """Hold claimed turns for `lease_s` more seconds; returns the ids that the owner still holds."""
        ...

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
        ...

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
        of the call before, empty if there was none. A person's review of an earlier verdict of the turn is
        forgotten.

        False if it came too late: another worker holds the turn, or its next state changed meanwhile and it
        waits to be judged again. Repeating a commit that succeeded changes nothing. Raises TurnNotFound, and
        IllegalMove for an imported turn without a `reason`: it cannot train.
        """
        ...

    def skip(
        self,
        turns: Sequence[str],
        reason: Reason,
        *,
        now: float,
        owner: str | None = None,
        error: str | None = None,
    ) -> int:
        """End turns without training, and return how many; with an `owner` only those it still holds.

        A turn that already trained or ended stays as it is. Raises TurnNotFound.
        """
        ...


class LearnerQueue(Protocol):
    """What waits for the learner. Read-only."""

    def in_update(self, *, now: float) -> int:
        """How many turns a learner holds."""
        ...

    def waiting(self, *, now: float) -> list[Waiting]:
        """The judged turns that a learner could claim now, oldest first; those that wait for a person too.

        A session has ended if no request follows its newest turn, that turn waits for none (the client said
        so, nothing answered for a day, or feedback took the reply's place), and no turn of it waits for the
        judge.
        """
        ...
