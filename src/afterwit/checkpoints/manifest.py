"""A version's manifest: the JSON that makes its folder a version.

It may come from a place that others write to, or from a backup, and its names become files here: every reader
uses `parse`.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

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
        raise ValueError(f"it says that it is version {version.number}, not {number}")
    _check(version)
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
