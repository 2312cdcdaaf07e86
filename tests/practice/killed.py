"""A practice stage in a process of its own, which is killed in the middle of a round."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from afterwit.store.sqlite import SqliteStore
from tests.fakes.renderers import renderer_of
from tests.practice.test_stage import House

ANSWERS = 3
"""Of a round of one lesson, next to its corrected turn."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(SqliteStore):
    """Its process is killed when the second answer of a round is to be written, or all are committed."""

    at, written = "", 0

    def practised(self, *args: Any, **more: Any) -> bool:
        done = super().practised(*args, **more)
        if self.at == "commit":
            die()
        return done

    def _practise(self, *args: Any, **more: Any) -> None:
        if self.at == "second answer" and self.written == 1:
            die()
        super()._practise(*args, **more)
        self.written += 1


def practise_and_die(path: Path, model: Path, at: str) -> None:
    requests = {"first request": 1, "last request": ANSWERS}.get(at, 0)
    store, seen = Dying.open(path, fingerprint="fake"), list[None]()
    store.at = at

    def asked() -> None:
        seen.append(None)
        if len(seen) == requests:
            die()

    House(store, renderer_of(model), meanwhile=asked).step()
