"""What a page shows of many turns: lists without conversations, each read in time that the store's size does
not decide."""

from __future__ import annotations

from typing import Protocol

from afterwit.core.judge_checks import Judged
from afterwit.store.lines import EndedTurn, Outcome, SessionLine, SourceLine, TurnLine
from afterwit.store.records import Filter, VersionRecord


class Browsing(Protocol):
    """Read-only. A page goes on behind the last line of the one before: `before` is its `seq` or number."""

    def turn_lines(
        self, where: Filter | None = None, *, before: int | None = None, limit: int = 50
    ) -> list[TurnLine]:
        """Turns whose content is there, the newest first."""
        ...

    def session_lines(self, *, before: int | None = None, limit: int = 30) -> list[SessionLine]:
        """Sessions by their newest main turn, the newest first."""
        ...

    def outcomes(self, *, limit: int, newest: bool = True) -> list[Outcome]:
        """The newest, or the first, judged turns, in the order of arrival."""
        ...

    def judged_turns(self, *, limit: int) -> list[Judged]:
        """The newest judged turns with the judge's votes, in the order of arrival."""
        ...

    def source_lines(self, *, newest: int) -> list[SourceLine]:
        """Who the newest turns came from, those with most turns first."""
        ...

    def ended_turns(self, *, after: tuple[float, int], until: float, limit: int) -> list[EndedTurn]:
        """Turns that were trained or skipped and stayed so, by when that was: behind `after`, the time
        and the `seq` of the last one, up to `until`. Imported turns are left out."""
        ...

    def newest_versions(self, *, before: int | None = None, limit: int = 50) -> list[VersionRecord]:
        """The newest versions that are not lost, the newest first."""
        ...
