"""Hears from the server that turns wait for the judge: LISTEN on a connection and a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from afterwit.store.postgresql.connection import conninfo_of

STOP_S = 0.25
"""Most seconds until the thread sees that it is to end."""
AGAIN_S = 2.0
"""Seconds until a lost connection is tried again. Stages ask by themselves meanwhile."""


@contextmanager
def listening(url: str, channel: str, heard: Callable[[], object]) -> Iterator[None]:
    """Call `heard`, in a thread of its own, at each notification while the body runs."""
    stop = threading.Event()
    thread = threading.Thread(
        target=_listen, args=(url, channel, heard, stop), name="store listens", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _listen(url: str, channel: str, heard: Callable[[], object], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            with psycopg.connect(conninfo_of(url), autocommit=True) as connection:
                connection.execute(f"LISTEN {channel}")
                heard()  # what was said before is not told again
                while not stop.is_set():
                    for _ in connection.notifies(timeout=STOP_S, stop_after=1):
                        heard()
        except psycopg.Error:
            stop.wait(AGAIN_S)
