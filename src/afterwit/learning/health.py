"""The reports of the learn stage, and the kinds of its failures. Importing it imports no torch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

from afterwit.checkpoints.manifest import lacks_space
from afterwit.errors import AfterwitError, DiskFull, EngineUnavailable, VersionsUnavailable
from afterwit.store import Pause, Store

STAGE: Final = "learn"
NO_MEMORY_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "status_alloc_failed",  # cuBLAS and cuDNN
    "failed to map segment",  # the dynamic linker, loading torch
)

log = logging.getLogger(__name__)


class LearnHealth:
    """The last report. Messages never quote a conversation."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store, self._now = store, now
        self._reported: tuple[bool, str] | None = None
        self._lasting_failure = False
        self._waiting: object = None

    def report(self, ok: bool, message: str, *, lasting: bool = True) -> None:
        """Store and log a message, unless it is the last one again.

        A `lasting` failure is not replaced by what the stage waits for.
        """
        if self._reported == (ok, message):
            return
        log.log(logging.INFO if ok else logging.WARNING, "learn: %s", message)
        self._lasting_failure, self._waiting = lasting and not ok, None
        self._write(ok, message)

    def waits(self, message: str, *, what: object) -> None:
        """Report what the stage waits for. Logged when that changes, not as time goes by."""
        if self._lasting_failure or self._reported == (True, message):
            return
        if self._waiting != what:
            log.info("learn: %s", message)
        self._waiting = what
        self._write(True, message)

    def forget(self) -> None:
        self._reported, self._lasting_failure = None, False

    def _write(self, ok: bool, message: str) -> None:
        try:
            self._store.set_status(STAGE, ok, message, now=self._now())
        except AfterwitError as error:  # on a full disk the log is all there is
            log.warning("learn: its status cannot be stored: %s", error)
        else:
            self._reported = (ok, message)


class FailureKind(Enum):
    """Kinds of failure of an update, by what would help: the sentence that reports each."""

    MEMORY = (
        "out of memory in an update of {turns}; the longest, {longest} tokens, waits; lower"
        " learner.micro_batch_tokens or learner.max_tokens, or set learner.checkpointing"
    )
    DISK = "no room to write a version ({error}); the turns wait: free some space"
    VERSIONS = "{error}; the turns wait, and are tried again"
    """The folder that machines share versions in cannot be written."""
    TEACHER = "the teacher is away: {error}; the turns wait, and are tried again"
    OTHER = "an update of {turns} failed: {error}; it is tried again"

    @property
    def elsewhere(self) -> bool:
        """Whether it lasts whichever turns are in the batch: no disk, no place for versions, no teacher."""
        return self in (FailureKind.DISK, FailureKind.VERSIONS, FailureKind.TEACHER)


def failure_kind(error: BaseException) -> FailureKind:
    """The kind of a failure, wherever in its chain of causes it shows."""
    if isinstance(error, VersionsUnavailable) and not isinstance(error, DiskFull):
        return FailureKind.VERSIONS
    if isinstance(error, EngineUnavailable):
        return FailureKind.TEACHER
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen).lower()
        if isinstance(seen, MemoryError) or any(words in text for words in NO_MEMORY_WORDS):
            return FailureKind.MEMORY
        if lacks_space(seen):
            return FailureKind.DISK
        seen = seen.__cause__ or seen.__context__
    return FailureKind.OTHER


def sentence(error: Exception) -> str:
    """The message of our own errors; a foreign error's message with its type."""
    return str(error) if isinstance(error, AfterwitError) else f"{type(error).__name__}: {error}"


def on_person(pause: Pause) -> str:
    why = f" ({pause.words})" if pause.words else ""
    return f"learning is paused{why}; turns are recorded and judged, and wait for `afterwit resume`"
