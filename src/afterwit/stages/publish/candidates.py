"""The versions on disk, and which of them may be served."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from afterwit.core.version import Version


class Checkpoints(Protocol):
    """The versions on disk."""

    def follow(self) -> None:
        """Learn of the versions that other machines wrote. VersionsUnavailable if they cannot be seen now."""

    def numbers(self) -> list[int]:
        """Every committed version's number."""

    def has_weights(self, number: int) -> bool:
        """Whether its weights are still there."""

    def get(self, number: int) -> Version | None:
        """What its manifest says."""

    def weights(self, number: int) -> Path:
        """The folder that its weights are in, on this disk."""

    def verify(self, number: int) -> None:
        """Raise VersionDamaged if a file of it is not what its manifest says."""

    def trim(self, keep: int, *, but: Collection[int] = ()) -> None:
        """Delete from this disk what other machines keep, unless it is of the newest `keep` or of `but`."""


def candidates(checkpoints: Checkpoints, served: int, refused: frozenset[int]) -> list[Version]:
    """Versions above the served one that may be served instead, newest first.

    None from before a version that forgets a session: it may hold what was forgotten.
    """
    numbers = sorted((number for number in checkpoints.numbers() if number > served), reverse=True)
    known = [
        version
        for number in numbers
        if checkpoints.has_weights(number) and (version := checkpoints.get(number))
    ]
    rolled_back = {number for version in known for number in version.reverts}
    oldest = max((version.number for version in known if version.forgets), default=0)
    return [
        version
        for version in known
        if version.number >= oldest and version.number not in refused | rolled_back
    ]
