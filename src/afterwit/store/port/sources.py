"""Who taught what: what each source said of a kind of call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from afterwit.core.adapters import SHARED
from afterwit.core.teaching import Votes


class Sources(Protocol):
    """A source is a key, whatever its clients call themselves (`source_of`). Read-only."""

    def votes_on(
        self, signature: str, *, after: str | None = None, adapter: str = SHARED
    ) -> Mapping[str, Votes]:
        """What each source that teaches an adapter said of calls of this kind, in verdicts that no person
        doubted; if `after` is given, of those after a call of that kind, or, if it is empty, after none.

        Those that contradict others count once a person accepted them.
        """
        ...

    def trained_since(self, at: float) -> Mapping[str, int]:
        """How many turns of each source versions made since then trained on as new ones."""
        ...

    def contradictions(self, source: str) -> int:
        """How many rejections of a source contradict what others approved, and no person accepted."""
        ...
