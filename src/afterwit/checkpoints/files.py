"""The files of a version: their kinds, their hashes, and locks."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from afterwit.checkpoints import manifest
from afterwit.errors import AlreadyRunning, SettingError

MODEL = "model.safetensors"

STATE = "learner.safetensors"
"""The optimiser's state, the fp32 weights if the version's are rounded, and the mean of an EMA teacher."""

WEIGHTS = (".safetensors", ".bin")
"""Suffixes of files that hold weights, whole or an adapter's."""

SHARD = ".shard"
"""Suffix of a part of the state that one process of the learner wrote."""

INDEX = "learner.index"
"""Lists the parts: written last, read first."""


def is_state(name: str) -> bool:
    """Whether only a learner reads it, to go on from the version."""
    return name in (STATE, INDEX) or name.endswith(SHARD)


def is_weights(name: str) -> bool:
    """Whether it holds what an engine serves."""
    return Path(name).suffix in WEIGHTS and name != STATE


def is_learned(name: str) -> bool:
    """Whether it holds anything that was learned."""
    return is_weights(name) or is_state(name)


def draft(folder: Path, text: str) -> Path:
    """Flush every file of the folder and the manifest's text, under another name, which is returned."""
    for path in folder.iterdir():
        sync(path)
    found = folder / manifest.DRAFT
    found.write_text(text)
    sync(found)
    sync(folder)
    sync(folder.parent)
    return found


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def hashes_of(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in the folder, as hex by file name."""
    return {path.name: digest_of(path) for path in sorted(folder.iterdir()) if path.is_file()}


def digest_of(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def first_damaged(folder: Path, expected: Mapping[str, str]) -> str | None:
    """The problem with the first file that is missing, unreadable or changed; None if all are intact."""
    for name, digest in expected.items():
        path = folder / name
        try:
            if digest_of(path) != digest:
                return f"{path} is damaged: its hash is not the one in the manifest"
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
    return None


@contextmanager
def exclusive(path: Path, *, purpose: str, wait: bool) -> Iterator[None]:
    """Hold the lock of the file `path`, which ends with the process. SettingError if it cannot be made.

    Without `wait`, raises AlreadyRunning with the id of the process that holds it.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}; choose another --home") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            holder = os.pread(handle, 32, 0).decode(errors="replace") or "unknown"
            raise AlreadyRunning(f"{purpose}: process {holder} holds {path}; stop it first") from error
        with suppress(OSError):  # a full disk has no room for the id, and the lock needs none
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
