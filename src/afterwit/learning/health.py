"""The learn stage's health: kinds of failure, and the messages for /readyz, the doctor and the log."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from enum import Enum, auto

from afterwit.adapters import SHARED
from afterwit.errors import AfterwitError, EngineUnavailable, VersionsUnavailable
from afterwit.learning.claims import STAGE
from afterwit.learning.schedule import NextBatch, duration, next_update
from afterwit.learning.settings import LearnerSettings
from afterwit.store import Pause, Store
from afterwit.text import counted
from afterwit.turn import Turn
from afterwit.version import Version

log = logging.getLogger(__name__)

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_SPACE_WORDS = ("no space left", "disk quota", "file too large")
NO_MEMORY_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "failed to map segment",  # the dynamic linker, loading torch
)

NOTHING_TO_LEARN = "no turn of the last batch carried a term: no update"


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
        """The reported failure is over."""
        self._reported, self._lasting_failure = None, False

    def _write(self, ok: bool, message: str) -> None:
        try:
            self._store.set_status(STAGE, ok, message, now=self._now())
        except AfterwitError as error:  # on a full disk the log is all there is
            log.warning("learn: its status cannot be stored: %s", error)
        else:
            self._reported = (ok, message)


class FailureKind(Enum):
    """Kinds of failure, by what would help."""

    MEMORY = auto()
    DISK = auto()
    VERSIONS = auto()
    """The folder that machines share versions in cannot be written."""
    TEACHER = auto()
    """The server with the teacher cannot be reached."""
    OTHER = auto()

    @property
    def elsewhere(self) -> bool:
        """Whether it lasts whichever turns are in the batch: no disk, no place for versions, no teacher."""
        return self in (FailureKind.DISK, FailureKind.VERSIONS, FailureKind.TEACHER)


def failure_kind(error: BaseException) -> FailureKind:
    """The kind of a failure, wherever in its chain of causes it shows."""
    if isinstance(error, VersionsUnavailable):
        return FailureKind.VERSIONS
    if isinstance(error, EngineUnavailable):
        return FailureKind.TEACHER
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen).lower()
        if isinstance(seen, MemoryError) or any(words in text for words in NO_MEMORY_WORDS):
            return FailureKind.MEMORY
        full = isinstance(seen, OSError) and seen.errno in NO_SPACE
        if full or any(words in text for words in NO_SPACE_WORDS):
            return FailureKind.DISK
        seen = seen.__cause__ or seen.__context__
    return FailureKind.OTHER


def of_adapter(adapter: str, words: str) -> str:
    """The words after the name of the adapter, unless it is the shared one."""
    return words if adapter == SHARED else f"{adapter}: {words}"


def on_waiting(choice: NextBatch, settings: LearnerSettings, *, version: int) -> str:
    """How many turns wait, and what the next update waits for."""
    return f"version {version}; {next_update(choice, settings)}"


def on_drained(version: int) -> str:
    """That a learner which was asked to learn from what is there has done so."""
    return f"version {version}; no judged turn is left"


def on_version(version: Version, *, alarm: float) -> tuple[bool, str]:
    """Whether the stage is healthy after an update, and a sentence."""
    mismatch = version.metrics.get("mismatch_fresh", 0.0)
    if mismatch > alarm:
        return False, (
            f"version {version.number}: with the same weights, the engine's log-probs are {mismatch:.3g} nats"
            f" from the learner's on average (alarm at {alarm:g}); is learner.dtype the engine's, and their"
            " model the same?"
        )
    fresh = version.recipe is not None and version.recipe.fresh_optimizer
    turns = counted(len(version.turns) or len(version.replayed), "turn")
    words = f"wrote version {version.number} from {turns}{'; its optimiser is new' if fresh else ''}"
    return True, of_adapter(version.adapter, words)


def on_lag(choice: NextBatch, *, stale: int) -> str:
    """That turns come faster than they can be learned, and by how much.

    `stale` turns became too old to train since the learner started.
    """
    left = choice.ready - len(choice.turns)
    return (
        f"learning lags: {counted(left, 'turn')} still wait, the oldest for {duration(choice.oldest_s)};"
        " not all can train before they are too old, so the newest go first;"
        f" {stale} became too old since the learner started"
    )


def on_refusal(error: Exception, *, turns: int) -> str:
    """The reason that an update of `turns` turns was not finite, and their fate."""
    return f"{error}; {turns} turns are set aside as not_finite"


def on_failure(kind: FailureKind, error: Exception, *, turns: int, longest: Turn) -> str:
    """Why an update of `turns` turns failed, and what would help."""
    if kind is FailureKind.DISK:
        return f"no room to write a version ({error}); {turns} turns wait, free some space"
    if kind is FailureKind.VERSIONS:
        return f"{error}; {turns} turns wait, and are tried again"
    if kind is FailureKind.TEACHER:
        return f"the teacher is away: {error}; {turns} turns wait, and are tried again"
    if kind is FailureKind.MEMORY:
        return (
            f"out of memory in an update of {turns} turns; the longest, {longest.id} of {tokens(longest)}"
            " tokens, waits; lower learner.micro_batch_tokens or learner.max_tokens, or set"
            " learner.checkpointing"
        )
    return f"an update of {turns} turns failed: {sentence(error)}; they are tried again"


def on_death(*, turns: int, longest: Turn) -> str:
    """The fate of an update of `turns` turns in which the learner died again and again."""
    return (
        f"the learner died again and again in an update of {turns} turns (out of memory?); the longest,"
        f" {longest.id} of {tokens(longest)} tokens, is set aside as learner_failed; lower"
        " learner.micro_batch_tokens or learner.max_tokens"
    )


def sentence(error: Exception) -> str:
    """The message of our own errors; a foreign error's message with its type."""
    return str(error) if isinstance(error, AfterwitError) else f"{type(error).__name__}: {error}"


def tokens(turn: Turn) -> int:
    return len(turn.prompt_ids) + len(turn.sampled.ids)


def on_person(pause: Pause) -> str:
    """That a person paused learning, and what goes on."""
    why = f" ({pause.words})" if pause.words else ""
    return f"learning is paused{why}; turns are recorded and judged, and wait; `afterwit resume` goes on"
