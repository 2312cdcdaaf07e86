"""Which kind of failure an exception is. Pure."""

from __future__ import annotations

import errno
from enum import Enum, auto

from afterwit.errors import EngineUnavailable, VersionsUnavailable

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


NO_SPACE_WORDS = ("no space left", "disk quota", "file too large")


NO_MEMORY_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "failed to map segment",  # the dynamic linker, loading torch
)


class FailureKind(Enum):
    """Kinds of failure, by what would help."""

    MEMORY = auto()
    DISK = auto()
    VERSIONS = auto()
    """The place that machines share versions at takes none."""
    TEACHER = auto()
    """The server with the teacher is away."""
    OTHER = auto()


def failure_kind(error: BaseException) -> FailureKind:
    """The kind of a failure, wherever in its chain of causes it shows."""
    if isinstance(error, VersionsUnavailable):
        return FailureKind.VERSIONS
    if isinstance(error, EngineUnavailable):
        return FailureKind.TEACHER
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or _says(seen, NO_MEMORY_WORDS):
            return FailureKind.MEMORY
        if (isinstance(seen, OSError) and seen.errno in NO_SPACE) or _says(seen, NO_SPACE_WORDS):
            return FailureKind.DISK
        seen = seen.__cause__ or seen.__context__
    return FailureKind.OTHER


def _says(error: BaseException, words: tuple[str, ...]) -> bool:
    text = str(error).lower()
    return any(word in text for word in words)
