"""The learn stage's health: stored for /readyz and the doctor, and logged, whenever it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from afterwit.core.errors import AfterwitError
from afterwit.stages.learn.claims import STAGE
from afterwit.store import Store

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
        """The reported failure is over."""
        self._reported, self._lasting_failure = None, False

    def _write(self, ok: bool, message: str) -> None:
        try:
            self._store.set_status(STAGE, ok, message, now=self._now())
        except AfterwitError as error:  # on a full disk the log is all there is
            log.warning("learn: its status cannot be stored: %s", error)
        else:
            self._reported = (ok, message)
