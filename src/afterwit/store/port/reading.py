"""Reading turns back: one, many, counted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from afterwit.core.adapters import SHARED
from afterwit.core.message import Message
from afterwit.store.records import Counts, Filter, Record


class Reading(Protocol):
    """Read-only."""

    def turn(self, turn: str) -> Record:
        """Raises TurnNotFound if there is no such turn, or its content was pruned."""
        ...

    def scopes(self, turns: Collection[str]) -> dict[str, str]:
        """For each of these turns, its scope; those without content are left out.

        Takes as long for a turn that is there as for one that is not: its content is not read.
        """
        ...

    def messages_of(self, turns: Collection[str]) -> dict[str, Message]:
        """For each of these turns, its response; those without content are left out."""
        ...

    def resolve(self, prefix: str) -> str:
        """The id of the only turn whose id begins with `prefix`; a whole id is its own.

        Raises TurnNotFound if there is none, TurnAmbiguous with the matches' names if there are several.
        """
        ...

    def turns(
        self,
        where: Filter | None = None,
        *,
        after: int = 0,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Record]:
        """Turns in the order of arrival, or the newest first; with `after`, a record's `seq`, from there on.

        The latest turn is the first one with `newest_first`.
        """
        ...

    def counts(self) -> Counts:
        """Turns by state, and ended turns by reason."""
        ...

    def group_rewards(self, turns: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """For each of these turns, the rewards of all judged turns of its scope with the same prompt ids.

        In the order of arrival, its own included, whatever became of the others.
        """
        ...

    def trained_with_hints(
        self, *, limit: int, min_version: int, seed: int, adapter: str = SHARED
    ) -> list[Record]:
        """Trained turns of an adapter that have hints, chosen at random by `seed`, for replay.

        Only turns whose oldest token was sampled by `min_version` or later.
        """
        ...

    def to_pass_on(self, *, limit: int) -> list[Record]:
        """Turns that trained an adapter of somebody's own and no version of the shared one, oldest first."""
        ...
