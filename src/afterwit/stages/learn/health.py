"""The learn stage's health: stored for /readyz and the doctor, and logged, whenever it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from afterwit.core.errors import AfterwitError
from afterwit.stages.learn.claims import STAGE
from afterwit.store import Store

log = logging.getLogger(__name__)


class Health:
    """The last report. Messages never quote a conversation."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store, self._now = store, now
        self._reported: tuple[bool, str] | None = None

    def report(self, ok: bool, message: str) -> None:
        """Store and log a message, unless it is the last one again."""
        if self._reported == (ok, message):
            return
        log.log(logging.INFO if ok else logging.WARNING, "learn: %s", message)
        try:
            self._store.set_status(STAGE, ok, message, now=self._now())
        except AfterwitError as error:  # on a full disk the log is all there is
            log.warning("learn: its status cannot be stored: %s", error)
        else:
            self._reported = (ok, message)
