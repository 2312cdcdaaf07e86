"""Hashes of a version's files: what was written is what is read, or the file is named."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

OLDER = 32
"""Characters of a digest that is no SHA-256."""


def hashes_of(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in the folder, as hex by file name."""
    return {path.name: digest_of(path) for path in sorted(folder.iterdir()) if path.is_file()}


def first_damaged(folder: Path, expected: Mapping[str, str]) -> str | None:
    """What is wrong with the first file that is missing, unreadable or changed; None if none is."""
    for name, digest in expected.items():
        path = folder / name
        try:
            if not matches(path, digest):
                return f"{path} is damaged: its hash is not the one in the manifest"
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
    return None


def matches(path: Path, digest: str) -> bool:
    """Whether a file has this SHA-256, or, as in older manifests, this BLAKE2b of 16 bytes."""
    if len(digest) == OLDER:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest() == digest
    return digest_of(path) == digest


def digest_of(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
