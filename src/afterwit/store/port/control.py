"""What people order: whether anything may be learned now, and from what. And notes that stages leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from afterwit.store.records import Excluded, Pause, ReviewOutcome


class Control(Protocol):
    """Orders hold until they are taken back, across restarts and for every process over the store."""

    def pause(self, words: str, *, now: float, adapter: str | None = None) -> Pause:
        """No learner claims a turn from here on; with an `adapter`, none that it would learn from. `words`:
        why; a pause that holds already gets the new ones, and keeps its time."""
        ...

    def resume(self) -> Pause | None:
        """Learning goes on, of every adapter. Returns a pause that ended; None: there was none."""
        ...

    def paused_adapters(self) -> Mapping[str, Pause]:
        """The pauses that hold for one adapter each."""
        ...

    def paused(self) -> Pause | None:
        """The pause that holds; None: learning may go on."""
        ...

    def review(self, turns: Sequence[str], *, accept: bool, now: float) -> dict[str, ReviewOutcome]:
        """A person's word on the verdicts of these turns; what became of each. Raises TurnNotFound.

        An accepted turn may train, a refused one ends. A turn that was refused may be accepted later. What
        trains at this moment, or has trained, stays as it is.
        """
        ...

    def exclude(self, session: str, *, now: float) -> Excluded:
        """End the session's turns and all that come: they never train. What has trained stays trained."""
        ...

    def include(self, session: str) -> bool:
        """Turns that come may train again; what ended stays ended. Whether the session was excluded."""
        ...

    def excluded(self) -> frozenset[str]:
        """The sessions that never train."""
        ...

    def set_note(self, name: str, text: str) -> None:
        """Keep what a stage says of itself; the newest text of a name counts."""
        ...

    def note(self, name: str) -> str | None:
        """The newest text of this name."""
        ...
