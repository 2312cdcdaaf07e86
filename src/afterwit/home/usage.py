"""The disk usage of a home, and what can be deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from afterwit.build import store_of_home, versions_of
from afterwit.config import Settings, home_of, load
from afterwit.gateway.backlog import FILE as UNRECORDED
from afterwit.home.home import CONFIG, MODEL, STORE, TOKEN, VERSIONS
from afterwit.home.model import DEQUANTISED
from afterwit.lifecycle import State
from afterwit.printing.terminal import Terminal, write_json
from afterwit.store import Store
from afterwit.text import size_in_words

WEIGHTS = ".safetensors"
NEEDED = dict.fromkeys((CONFIG, MODEL, TOKEN, DEQUANTISED), "needed") | {
    UNRECORDED: "turns that were served while the store was away: the next `afterwit serve` records them"
}
"""Why a file or folder of a home stays, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """An item in a home: its bytes on the disk, and whether and when it is deleted."""

    name: str
    bytes: int
    words: str
    elsewhere: bool = False
    """Whether it is not on the disk of the home."""


def print_usage(home: Path | None, *, json: bool) -> None:
    """`afterwit du`: everything in the home. Links to one file count once."""
    counted: set[tuple[int, int]] = set()

    def size_of(path: Path) -> int:
        """The bytes of a file, or of the files below a folder, that were not counted before."""
        found = 0
        for file in path.rglob("[!.]*") if path.is_dir() else (path,):
            status = file.lstat()
            if file.is_file() and (status.st_dev, status.st_ino) not in counted:
                counted.add((status.st_dev, status.st_ino))
                found += status.st_size
        return found

    home, settings = home_of(home), load(home=home)
    with store_of_home(home) as store:
        found = [
            _store(home, store, settings, size_of),
            *_versions(home, store, settings, size_of),
            *_others(home, size_of),
        ]
    if json:
        for one in found:
            write_json(one)
        return
    table = Table("what", "size", "can it go?", box=None, pad_edge=False)
    for one in found:
        table.add_row(one.name, size_in_words(one.bytes), one.words)
    here = size_in_words(sum(one.bytes for one in found if not one.elsewhere))
    table.add_row(str(home), here, "all together", style="bold")
    Terminal().print(table)


def _store(home: Path, store: Store, settings: Settings, size_of: Callable[[Path], int]) -> Usage:
    retention, states = settings.store, store.counts().states
    ended = sum(states.get(state, 0) for state in (State.TRAINED, State.SKIPPED))
    waiting = sum(states.values()) - ended
    words = (
        f"{ended} turns that ended go after {retention.keep_days:g} days (store.keep_days), the oldest "
        f"earlier above {retention.keep_gb:g} GB (store.keep_gb); {waiting} wait and stay"
    )
    if retention.url is not None:
        return Usage(name="store.url", bytes=store.size(), words=words, elsewhere=True)
    taken = sum(size_of(path) for path in sorted(home.glob(f"{STORE}*")))
    free = size_in_words(max(0, taken - store.size()))
    return Usage(name=STORE, bytes=taken, words=f"{words}; {free} are free for new turns")


def _versions(
    home: Path, store: Store, settings: Settings, size_of: Callable[[Path], int]
) -> Iterator[Usage]:
    """Versions with weights one by one, the manifests of all, and the files at `versions.url`."""
    versions = versions_of(home, home, settings.versions)
    keep, chains, manifests = settings.learner.keep_versions, versions.chains(), 0
    served = {store.latest_published(adapter) for adapter in chains}
    newest = {number for chain in chains.values() for number in chain[-keep:]}
    numbers = versions.numbers()
    for number in numbers:
        place = versions.place(number)
        size = size_of(place)
        if not any(path.suffix == WEIGHTS for path in place.iterdir()):
            manifests += size
            continue
        when = (
            f"after {keep} newer ones (learner.keep_versions)" if number in newest else "with the next update"
        )
        words = f"{'is served; ' if number in served else ''}goes {when}, unless promotion may return to it"
        yield Usage(name=f"{VERSIONS}/{place.name}", bytes=size, words=words)
    if numbers:
        yield Usage(
            name="manifests", bytes=manifests, words="record which turns each version learned from: they stay"
        )
    if versions.remote is not None:
        versions.follow()
        there = versions.remote.files()
        words = (
            f"{len(there)} files at {versions.remote.place}, not on this disk: the newest {keep} versions "
            "(learner.keep_versions) and a ladder of older ones"
        )
        yield Usage(name="versions.url", bytes=sum(there.values()), words=words, elsewhere=True)


def _others(home: Path, size_of: Callable[[Path], int]) -> Iterator[Usage]:
    for path in sorted(home.iterdir()):
        if not path.name.startswith(STORE) and path.name != VERSIONS and not path.name.endswith(".lock"):
            words = NEEDED.get(path.name, "nothing here needs it: delete it if you like")
            yield Usage(name=path.name, bytes=size_of(path), words=words)
