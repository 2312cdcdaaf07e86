"""File locks between processes. The kernel frees them when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from afterwit.core.errors import AlreadyRunning, SettingError


@contextmanager
def exclusive(path: Path, *, purpose: str, wait: bool) -> Iterator[None]:
    """Hold the lock of the file `path`. SettingError if the file cannot be made.

    Without `wait`, raises AlreadyRunning, which names the process that holds it.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}; choose another --home") from error
    try:
        _take(handle, path, purpose, wait)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def held(path: Path) -> bool:
    """Whether a process holds the lock of this file."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _take(handle: int, path: Path, purpose: str, wait: bool) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        holder = os.pread(handle, 32, 0).decode(errors="replace") or "unknown"
        raise AlreadyRunning(f"{purpose}: process {holder} holds {path}; stop it first") from error
