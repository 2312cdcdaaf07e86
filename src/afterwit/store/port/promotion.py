"""What versions are measured by: how episodes ended, what people approved, and what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from afterwit.core.promotion import Episode, Event, Item
from afterwit.store.records import EndedEpisode, Record


class Promotion(Protocol):
    """Episodes, the suite of approved turns, and the events of promotion.

    Each belongs to the adapter that served the turns. Where an `adapter` may be named, None means: of all.
    """

    def line(self, turn: str, *, limit: int = 64) -> list[Record]:
        """A turn behind those that lead to it in its session, oldest first: at most `limit`, whose content is
        there. Raises TurnNotFound."""
        ...

    def end_episode(self, ended: Episode, items: Sequence[Item], *, steps: Sequence[str], now: float) -> None:
        """Store how an episode ended, and the items it approved; an episode of the same turn is replaced.

        `steps` are its turns: an episode that seemed to end with an earlier one of them is forgotten.
        """
        ...

    def episodes(self, adapter: str | None = None, *, after: int | None = None) -> list[EndedEpisode]:
        """The episodes since the last alarm, in the order in which they ended.

        `after`: only of versions that were learned since this one and since that alarm: none that it was
        learned from, no rollback to one of those, and none that the alarm takes back.
        """
        ...

    def all_episodes(self, *, limit: int | None = None, newest: bool = True) -> list[EndedEpisode]:
        """All episodes, or `limit` of them, the newest or the first, in the order in which they ended."""
        ...

    def ended_badly(self, *, until: int, newest: int = 24, adapter: str | None = None) -> tuple[int, int]:
        """How many of how many episodes ended badly, of the newest that version `until` served, and those
        that it was learned from.

        A rollback to one of these versions counts as it; what was taken back before `until` was learned does
        not count.
        """
        ...

    def unended(self, *, before: float, limit: int = 64) -> list[Record]:
        """Main turns from before that time whose tool call nothing followed and that closed no episode.

        Of the choices of one response the first, if nothing followed any of them.
        """
        ...

    def ended_choices(self, turn: str) -> list[str]:
        """The other choices of the turn's response that closed an episode."""
        ...

    def suite(self, adapter: str | None = None) -> list[Item]:
        """The approved turns that have not been retired, newest first."""
        ...

    def retire(self, turns: Sequence[str]) -> int:
        """Take items out of the suite whose stratum was approved twice since; returns how many."""
        ...

    def withdraw(self, turns: Sequence[str]) -> int:
        """Take items out of the suite: who approved them asks for something else now. Returns how many."""
        ...

    def decided(self, event: Event) -> None:
        """Keep an event."""
        ...

    def events(self, adapter: str | None = None) -> list[Event]:
        """All events, oldest first."""
        ...
