"""What versions need of a place that all machines reach.

It holds manifests by number, and files by the SHA-256 of what is in them: a file that two versions share lies
there once, and no writer can change another's. A version is there once its manifest is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Remote(Protocol):
    """Each method raises VersionsUnavailable if the place does not answer, VersionsRefused if it will not
    do it until somebody changes something."""

    @property
    def place(self) -> str:
        """Where it is, as people write it."""

    def numbers(self) -> list[int]:
        """Every version that has a manifest there, ascending."""

    def manifests(self, numbers: Sequence[int]) -> dict[int, str]:
        """The texts of these versions' manifests; what is not there is left out."""

    def commit(self, number: int, text: str) -> None:
        """Put a manifest there, whole or not at all. VersionTaken if that number has another one."""

    def files(self) -> Mapping[str, int]:
        """The bytes of each file that is there whole, by its digest."""

    def put(self, digest: str, source: Path) -> None:
        """Copy a file there."""

    def get(self, digest: str, target: Path) -> None:
        """Copy a file from there. Whether it is what it was is for the caller to find out."""

    def remove(self, digests: Collection[str]) -> None:
        """Delete files, those that are not there too."""

    def check(self) -> None:
        """Raise what writing, reading, deleting, or a second manifest of one number would raise."""
