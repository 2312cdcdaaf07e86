"""What versions need of a place that all machines reach.

It holds manifests by number, and files by the SHA-256 of what is in them: a file that two versions share lies
there once, and no writer can change another's. A version is there once its manifest is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol
from urllib.parse import urlsplit

from afterwit.ranges import at_least


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


MANIFESTS = "manifests"


FILES = "files"


DRAFTS = "drafts"


MANIFEST = re.compile(r"([0-9]{6})\.json")


def name_of(number: int) -> str:
    """The name of a version's manifest."""
    return f"{number:06d}.json"


def numbers_of(names: Iterable[str]) -> list[int]:
    """The numbers of the manifests among these names, ascending; what else lies there is nobody's version."""
    return sorted(int(found[1]) for name in names if (found := MANIFEST.fullmatch(name)))


S3 = "s3"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsSettings:
    """Where the weight versions are kept beside `versions/` of the home."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    url: str | None = None
    """`s3://bucket/folder`, or a folder that all machines reach; unset: in the home alone. Other machines
    find the versions there, and one with an empty disk begins with the newest. Credentials are those of the
    AWS tools: `AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, a role. Write it in config.toml or the environment, so that
    every command finds it."""
    endpoint: str | None = None
    """Where an S3 server that is not Amazon's answers, such as `http://minio.example:9000`."""
    state_every: int = 1
    """The optimiser's state of each so-manieth version goes to `url`: with full weights it is most of what is
    written. A machine that begins with a version whose state is not there begins the optimiser anew. The
    newest `learner.keep_versions` have theirs on the learner's own disk in any case."""

    def __post_init__(self) -> None:
        at_least(self, 1, "state_every")
        if self.url is None:
            if self.endpoint is not None:
                raise ValueError(
                    f"endpoint is {self.endpoint!r}, but url names no bucket: set url = 's3://...'"
                )
            return
        parts = urlsplit(self.url)
        if "@" in parts.netloc:
            raise ValueError(
                "url holds credentials: leave them out, and set AWS_ACCESS_KEY_ID or AWS_PROFILE"
            )
        if parts.scheme == S3:
            if not parts.netloc:
                raise ValueError(f"url is {self.url!r}, which names no bucket: s3://bucket/folder")
        elif parts.scheme:
            raise ValueError(f"url is {self.url!r}, but is either s3://bucket/folder or a folder's path")
        elif not Path(self.url).expanduser().is_absolute():
            raise ValueError(f"url is {self.url!r}, but must be an absolute path, or s3://bucket/folder")
        if self.endpoint is not None and urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise ValueError(f"endpoint is {self.endpoint!r}, but must begin with http:// or https://")
