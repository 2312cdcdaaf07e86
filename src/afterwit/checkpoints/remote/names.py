"""The names of what lies in a place that all machines reach."""

from __future__ import annotations

MANIFESTS = "manifests"
FILES = "files"
DRAFTS = "drafts"
SUFFIX = ".json"


def name_of(number: int) -> str:
    """The name of a version's manifest."""
    return f"{number:06d}{SUFFIX}"


def number_of(name: str) -> int:
    """The inverse of `name_of`."""
    return int(name.removesuffix(SUFFIX))
