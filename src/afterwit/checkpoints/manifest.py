"""A version's manifest, the JSON that makes its folder a version; its files, their kinds, hashes and locks.

A manifest may come from a place that others write to, or from a backup, and its names become files here:
every reader uses `parse`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from afterwit.errors import AfterwitError, AlreadyRunning, DiskFull, SettingError
from afterwit.version import Version

NAME = "manifest.json"

DRAFT = f".{NAME}"
"""The manifest until it is flushed to the disk."""

NO_NAME = re.compile(r"\.{0,2}|.*[/\\:\x00-\x1f\x7f].*", re.DOTALL)
"""Anything but one plain component of a path, on any platform."""

MOST_BYTES = 255
"""Of a file's name."""

DIGEST = re.compile(r"[0-9a-f]{64}")
"""SHA-256."""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_SPACE_WORDS = ("no space left", "disk quota", "file too large")
"""Of libraries that lose the number."""

T = TypeVar("T")


def names_file(name: str) -> bool:
    """Whether a file of a version may have this name, one in its own folder and not the manifest."""
    return (
        NO_NAME.fullmatch(name) is None
        and name not in (NAME, DRAFT)
        and len(name.encode(errors="replace")) <= MOST_BYTES
    )


def dump(version: Version) -> str:
    """The manifest's text. ValueError if `parse` would refuse it."""
    _check(version)
    return json.dumps(asdict(version), indent=1)


def parse(text: str, number: int) -> Version:
    """The version in the text of the manifest `number`. The inverse of `dump`.

    ValueError unless it is a version of this number, from earlier ones, whose files have plain names and
    digests.
    """
    version = parsed(Version, text)
    if version.number != number:
        raise ValueError(f"its number is {version.number}, not {number}")
    _check(version)
    if FORMER_STATE in version.files:
        files = {STATE if name == FORMER_STATE else name: digest for name, digest in version.files.items()}
        return replace(version, files=files)
    return version


def _check(version: Version) -> None:
    named = (version.parent, version.restores, version.begins)
    for number in (*named, *version.replays, *version.reverts, *version.returns):
        if number is not None and not 0 <= number < version.number:
            raise ValueError(f"version {version.number} cannot come from version {number}")
    for name, digest in version.files.items():
        if not names_file(name):
            raise ValueError(f"{name!r} cannot be the name of a version's file")
        if DIGEST.fullmatch(digest) is None:
            raise ValueError(f"{digest!r} is not a hash of the file {name}")


def read(path: Path) -> Version:
    """The version in a manifest, whose number is the name of its folder."""
    return parse(path.read_text(), int(path.parent.name))


def history_in(path: Path) -> Version:
    """The version in a manifest, without metrics, effects and recipe. Raises as `parse` does, and OSError."""
    status = path.stat()
    return _history_in(path, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=65_536)
def _history_in(path: Path, inode: int, changed: int) -> Version:
    """Cached: a manifest never changes. Without effects, which are most of its bytes."""
    return replace(read(path), metrics={}, effects=(), recipe=None)


def adapter_in(path: Path) -> str | None:
    """The adapter that a manifest belongs to; None if it cannot be read."""
    try:
        return history_in(path).adapter
    except (OSError, ValueError):
        return None


def parsed(kind: type[T], text: str | bytes) -> T:
    """The value in a JSON text. Unknown fields are ignored. ValueError with one line on what is wrong."""
    key: Any = kind
    try:
        found: T = _adapter(key).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from error
    return found


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


MODEL = "model.safetensors"

STATE = "learner.state"
"""The optimiser's state, the fp32 weights if the version's are rounded, and the mean of an EMA teacher: a
safetensors file with another suffix, because engines load every file with that one."""

FORMER_STATE = "learner.safetensors"
"""Its name in older manifests."""

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
    return name.endswith(WEIGHTS)


def is_learned(name: str) -> bool:
    """Whether it holds anything that was learned."""
    return is_weights(name) or is_state(name)


def draft(folder: Path, text: str) -> Path:
    """Flush every file of the folder and the manifest's text, under another name, which is returned."""
    for path in folder.iterdir():
        sync(path)
    found = folder / DRAFT
    found.write_text(text)
    sync(found)
    sync(folder)
    sync(folder.parent)
    return found


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lacks_space(error: BaseException) -> bool:
    """Whether it is the error of a full disk."""
    full = isinstance(error, OSError) and error.errno in NO_SPACE
    return full or any(words in str(error).lower() for words in NO_SPACE_WORDS)


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Raises DiskFull, with the folder's name, if this disk has no room for what the body writes."""
    try:
        yield
    except AfterwitError:
        raise
    except Exception as error:
        if not lacks_space(error):
            raise
        why = getattr(error, "strerror", None) or error
        raise DiskFull(f"{folder} cannot be written: {why}") from error


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
