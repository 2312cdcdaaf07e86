"""The names of what lies in a place that all machines reach."""

from __future__ import annotations

import re
from collections.abc import Iterable

MANIFESTS = "manifests"
FILES = "files"
DRAFTS = "drafts"
MANIFEST = re.compile(r"([0-9]{6})\.json")


def name_of(number: int) -> str:
    """The name of a version's manifest."""
    return f"{number:06d}.json"


def numbers_of(names: Iterable[str]) -> list[int]:
    """The numbers of the manifests among these names, ascending; what else lies there is nobody's version."""
    return sorted(int(found[1]) for name in names if (found := MANIFEST.fullmatch(name)))
