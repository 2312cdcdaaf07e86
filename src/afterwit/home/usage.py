"""The disk usage of a home, and what can be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from afterwit.build import versions_of
from afterwit.config import Settings
from afterwit.home.home import CONFIG, MODEL, STORE, VERSIONS
from afterwit.lifecycle import State
from afterwit.store import Store

WEIGHTS = ".safetensors"

ENDED = (State.TRAINED, State.SKIPPED)
"""States of turns that retention removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """An item in a home: its bytes on the disk, and whether and when it is deleted."""

    name: str
    bytes: int
    words: str
    elsewhere: bool = False
    """Whether it is not on the disk of the home."""


def usage(home: Path, store: Store, settings: Settings) -> list[Usage]:
    """Everything in the home, versions with weights one by one. Links to one file count once."""
    counted: set[tuple[int, int]] = set()
    return [
        _store(home, store, settings, counted),
        *_versions(home, store, settings, counted),
        *_shared(home, settings),
        *_others(home, counted),
    ]


def _store(home: Path, store: Store, settings: Settings, counted: set[tuple[int, int]]) -> Usage:
    retention, states = settings.store, store.counts().states
    ended = sum(states.get(state, 0) for state in ENDED)
    waiting = sum(states.values()) - ended
    words = (
        f"{ended} turns that ended go after {retention.keep_days:g} days (store.keep_days), the oldest "
        f"earlier above {retention.keep_gb:g} GB (store.keep_gb); {waiting} wait and stay"
    )
    if retention.url is not None:
        return Usage(name="store.url", bytes=store.size(), words=words, elsewhere=True)
    taken = sum(_bytes(path, counted) for path in sorted(home.glob(f"{STORE}*")))
    free = max(0, taken - store.size())
    return Usage(name=STORE, bytes=taken, words=f"{words}; {in_words(free)} are free for new turns")


def _versions(home: Path, store: Store, settings: Settings, counted: set[tuple[int, int]]) -> Iterator[Usage]:
    versions = versions_of(home, home)
    keep, chains, manifests = settings.learner.keep_versions, versions.chains(), 0
    served = {store.latest_published(adapter) for adapter in chains}
    newest = {number for chain in chains.values() for number in chain[-keep:]}
    numbers = versions.numbers()
    for number in numbers:
        place = versions.place(number)
        size = _bytes(place, counted)
        if not any(path.suffix == WEIGHTS for path in place.iterdir()):
            manifests += size
            continue
        if number in newest:
            words = f"goes after {keep} newer ones (learner.keep_versions), unless promotion may return to it"
        else:
            words = "goes with the next update, unless promotion may return to it"
        served_now = "is served; " if number in served else ""
        yield Usage(name=f"{VERSIONS}/{place.name}", bytes=size, words=served_now + words)
    if numbers:
        yield Usage(
            name="manifests", bytes=manifests, words="say what was learned from which turns: they stay"
        )


def _shared(home: Path, settings: Settings) -> Iterator[Usage]:
    """The files at `versions.url`, which take no space on this disk."""
    versions = versions_of(home, home, settings.versions)
    if versions.remote is not None:
        versions.follow()
        there = versions.remote.files()
        yield Usage(
            name="versions.url",
            bytes=sum(there.values()),
            words=f"{len(there)} files at {versions.remote.place}, not on this disk: the newest "
            f"{settings.learner.keep_versions} versions (learner.keep_versions) and a ladder of older ones",
            elsewhere=True,
        )


def _others(home: Path, counted: set[tuple[int, int]]) -> Iterator[Usage]:
    for path in sorted(home.iterdir()):
        if not path.name.startswith(STORE) and path.name != VERSIONS and not path.name.endswith(".lock"):
            words = (
                "needed" if path.name in (CONFIG, MODEL) else "nothing here needs it: delete it if you like"
            )
            yield Usage(name=path.name, bytes=_bytes(path, counted), words=words)


def _bytes(path: Path, counted: set[tuple[int, int]]) -> int:
    """The bytes of a file, or of the files below a folder, that were not counted before."""
    found = 0
    for file in path.rglob("[!.]*") if path.is_dir() else (path,):
        status = file.lstat()
        if file.is_file() and (status.st_dev, status.st_ino) not in counted:
            counted.add((status.st_dev, status.st_ino))
            found += status.st_size
    return found


def in_words(size: int) -> str:
    """`1.5 GiB`, `12 KiB`, `90 B`."""
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}"
    return f"{size / 2**10:.0f} KiB" if size >= 2**10 else f"{size} B"
