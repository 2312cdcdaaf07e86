"""What people order: whether anything may be learned now. And what a stage tells the commands of itself."""

from __future__ import annotations

from typing import Protocol

from afterwit.store.records import Pause


class Control(Protocol):
    """Orders hold until they are taken back, across restarts and for every process over the store."""

    def pause(self, words: str, *, now: float) -> Pause:
        """No learner claims a turn from here on. `words`: why; a pause that holds already gets the new ones,
        and keeps its time."""
        ...

    def resume(self) -> Pause | None:
        """Learning goes on. Returns the pause that ended; None: there was none."""
        ...

    def paused(self) -> Pause | None:
        """The pause that holds; None: learning may go on."""
        ...

    def set_note(self, name: str, text: str) -> None:
        """Keep what a stage says of itself; the newest text of a name counts."""
        ...

    def note(self, name: str) -> str | None:
        """The newest text of this name."""
        ...
