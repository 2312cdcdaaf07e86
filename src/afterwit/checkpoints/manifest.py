"""A version's manifest: the JSON that makes its folder a version."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from afterwit.core.adapters import SHARED
from afterwit.core.promotion import SuiteResult
from afterwit.core.version import Effect, Origin, Probe, Recipe, Version

NAME = "manifest.json"


def dump(version: Version) -> str:
    """The manifest's text."""
    return json.dumps(asdict(version), indent=1)


def parse(text: str) -> Version:
    """The version in a manifest's text. The inverse of `dump`."""
    data = json.loads(text)
    probe = data.pop("probe")
    return Version(
        number=data["number"],
        parent=data["parent"],
        origin=Origin(data["origin"]),
        created=data["created"],
        turns=tuple(data["turns"]),
        replayed=tuple(data["replayed"]),
        restores=data["restores"],
        reverts=tuple(data["reverts"]),
        probe=Probe(ids=tuple(probe["ids"]), logprobs=tuple(probe["logprobs"])),
        files=data["files"],
        metrics=data["metrics"],
        recipe=None if data.get("recipe") is None else _recipe(data["recipe"]),
        begins=data.get("begins"),
        replays=tuple(data.get("replays", ())),
        forgets=tuple(data.get("forgets", ())),
        without=tuple(data.get("without", ())),
        effects=tuple(Effect.from_dict(each) for each in data.get("effects", ())),
        suite=None if data.get("suite") is None else SuiteResult.from_dict(data["suite"]),
        adapter=data.get("adapter", SHARED),
    )


def read(path: Path) -> Version:
    """The version in a manifest."""
    return parse(path.read_text())


def adapter_in(path: Path) -> str | None:
    """The adapter that a manifest belongs to; None if it cannot be read."""
    try:
        status = path.stat()
        return _adapter_in(path, status.st_ino, status.st_mtime_ns)
    except (OSError, ValueError, AttributeError):
        return None


@lru_cache(maxsize=65_536)
def _adapter_in(path: Path, inode: int, changed: int) -> str:
    """Read once: a manifest never changes."""
    return str(json.loads(path.read_text()).get("adapter", SHARED))


def history_in(path: Path) -> Version:
    """The version in a manifest, without what an update measured and how to run it again. Raises as `parse`
    does, and OSError."""
    status = path.stat()
    return _history_in(path, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=65_536)
def _history_in(path: Path, inode: int, changed: int) -> Version:
    """Read once: a manifest never changes. Effects are most of it."""
    return replace(read(path), metrics={}, effects=(), recipe=None)


def _recipe(data: dict[str, Any]) -> Recipe:
    groups = {turn: tuple(rewards) for turn, rewards in data["groups"].items()}
    return Recipe(**{**data, "groups": groups})
