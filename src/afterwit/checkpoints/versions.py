"""The folder of versions: `NNNNNN/` is a version once its manifest is there, which is written last.

Manifests stay, because they record which turns have trained; old weights are deleted. Version 0 is the base:
its folder holds a manifest and no weights, and so does the folder of a rollback to it. Versions of all
adapters share the folder and the numbers: a number names one version of one adapter.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from afterwit.checkpoints import manifest
from afterwit.checkpoints.files import (
    draft,
    exclusive,
    first_damaged,
    hashes_of,
    is_learned,
    is_weights,
    sync,
)
from afterwit.errors import SettingError, VersionDamaged, VersionTaken
from afterwit.version import Origin, Version

FOLDER = re.compile("[0-9]{6}")

SCRATCH = ".scratch-"
"""Prefix of a folder of temporary versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """`root` is the folder of versions, `base` the folder of the model that was trained."""

    root: Path
    base: Path
    adapter: str | None = None
    """List this adapter's versions and the base only; None: those of all adapters."""

    def of(self, adapter: str | None) -> Versions:
        """The same folder, limited to an adapter; None: not limited."""
        return replace(self, adapter=adapter)

    def chains(self) -> dict[str, list[int]]:
        """Of each adapter with a version of its own, the numbers of the base and its versions, ascending."""
        found: dict[str, list[int]] = {}
        for number in sorted(self._folders()):
            adapter = manifest.adapter_in(self._manifest(number)) if number else None
            if adapter is not None:
                found.setdefault(adapter, [0]).append(number)
        return found

    def all(self) -> list[Version]:
        """Every version that has a manifest, oldest first. VersionDamaged if one cannot be read."""
        return [self._read(number) for number in self.numbers()]

    def history(self) -> list[Version]:
        """As `all`, without metrics, effects and recipes. Cached."""
        return [self._read(number, manifest.history_in) for number in self.numbers()]

    def get(self, number: int) -> Version | None:
        """One version, None if it does not exist. VersionDamaged if its manifest cannot be read."""
        return self._read(number) if self._manifest(number).exists() else None

    def _read(self, number: int, read: Callable[[Path], Version] = manifest.read) -> Version:
        path = self._manifest(number)
        try:
            return read(path)
        except (OSError, ValueError) as error:
            raise VersionDamaged(
                f"{path} cannot be read ({error}): bring it back from a copy, or remove the folder "
                f"{path.parent}; its turns train again then"
            ) from error

    def newest(self) -> int:
        """The newest version's number; 0 before the first update."""
        return next((number for number in self._downwards() if self._is_listed(number)), 0)

    def numbers(self) -> list[int]:
        """Every version's number, ascending. One whose manifest cannot be read is in every adapter's list."""
        return [number for number in self._numbers() if self._is_listed(number)]

    def next(self) -> int:
        """The number of the version that is written next, whichever adapter it is of."""
        return next(self._downwards(), 0) + 1

    def _numbers(self) -> list[int]:
        return list(self._downwards())[::-1]

    def _downwards(self) -> Iterator[int]:
        """Every version's number, descending. Lazy: looks into no more folders than needed."""
        numbers = sorted(self._folders(), reverse=True)
        return (number for number in numbers if self._manifest(number).exists())

    def _folders(self) -> list[int]:
        """The numbers of all folders, with or without a manifest, in any order."""
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return []
        return [int(name) for name in names if FOLDER.fullmatch(name)]

    def _is_listed(self, number: int) -> bool:
        if self.adapter is None or number == 0:
            return True
        return manifest.adapter_in(self._manifest(number)) in (self.adapter, None)

    def _manifest(self, number: int) -> Path:
        return self.place(number) / manifest.NAME

    def place(self, number: int) -> Path:
        """The version's own folder, which may not exist."""
        return self.root / f"{number:06d}"

    def follow(self) -> None:
        """Read the versions that other machines wrote."""

    def share(self) -> None:
        """Give other machines the versions that only this disk has. Call it while `learning`."""

    def weights(self, number: int, *, state: bool = False) -> Path:
        """The folder with the version's weights, whole or an adapter; the model's folder if it is the base.

        With `state`, the optimiser's state is there too, if it still exists. SettingError if the weights are
        gone.
        """
        if self._is_base(number):
            return self.base
        if not self.has_weights(number):
            others = ", ".join(str(number) for number in self.numbers() if self.has_weights(number))
            raise SettingError(
                f"the weights of version {number} are not in {self._where}; those of {others} are"
            )
        return self.place(number)

    @property
    def _where(self) -> str:
        return str(self.root)

    def has_weights(self, number: int) -> bool:
        """Whether the version can be served."""
        return self.on_disk(number) or self._is_base(number)

    def on_disk(self, number: int) -> bool:
        """Whether weights of the version's own are on this disk."""
        return self._here(number, is_weights)

    def resumes(self, number: int) -> bool:
        """Whether a learner can continue from the version exactly."""
        return self.has_weights(number)

    def holds(self, number: int) -> bool:
        """Whether anything that the version learned still exists."""
        return self._here(number, is_learned)

    def _here(self, number: int, kind: Callable[[str], bool]) -> bool:
        """Whether the version has a file of a kind on this disk."""
        place = self.place(number)
        return (place / manifest.NAME).exists() and any(kind(path.name) for path in place.iterdir())

    def verify(self, number: int) -> None:
        """Compare the version's files with the hashes in its manifest; reads them all.

        Raises VersionDamaged for the first file that differs, with the remedy. The base has no hashes. Pass a
        version that `has_weights`.
        """
        if (problem := self._damage(number)) is not None:
            raise VersionDamaged(f"{problem}; {self._remedy(number)}")

    def _damage(self, number: int) -> str | None:
        version = self.get(number)
        if version is None or self._is_base(number):
            return None
        return first_damaged(self.place(number), self._expected(version))

    def _expected(self, version: Version) -> Mapping[str, str]:
        """The files that must be on this disk, each with its hash."""
        return version.files

    def _remedy(self, damaged: int) -> str:
        """Return to the adapter's newest intact version before it. The base always is."""
        chain = self.of(manifest.adapter_in(self._manifest(damaged)))
        earlier = (n for n in reversed(chain.numbers()) if n < damaged and self.has_weights(n))
        whole = next((n for n in earlier if self._damage(n) is None), 0)
        return f"bring it back from a copy, or return to version {whole} with `afterwit rollback {whole}`"

    def _is_base(self, number: int) -> bool:
        """Whether it is version 0 or a rollback to it, directly or through other rollbacks."""
        while number > 0:
            version = self.get(number)
            if version is None or version.restores is None:
                return False
            number = version.restores
        return True

    @contextmanager
    def learning(self) -> Iterator[None]:
        """The lock of the only learner of these versions. AlreadyRunning if another process holds it.

        Removes what a killed learner left in its `scratch`.
        """
        with exclusive(self.root / ".learner.lock", purpose="only one learner may run", wait=False):
            for left in self.root.glob(f"{SCRATCH}*"):
                shutil.rmtree(left, ignore_errors=True)
            yield

    @contextmanager
    def scratch(self) -> Iterator[Versions]:
        """Temporary versions of the same base, on this disk only. Call it while `learning`."""
        with tempfile.TemporaryDirectory(dir=self.root, prefix=SCRATCH) as folder:
            yield Versions(root=Path(folder), base=self.base)

    @property
    def _lock(self) -> Path:
        return self.root / ".write.lock"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The lock under which versions are written. Waits for it, then removes unfinished versions."""
        with exclusive(self._lock, purpose="a version is being written", wait=True):
            self._sweep()
            yield

    def write(self, version: Version, fill: Callable[[Path], None]) -> Version:
        """Write `version`: `fill` puts its files into a new folder, then its manifest is renamed into place.

        Returns the version with the hashes of its files. Call it while `writing`. Raises VersionTaken if the
        newest version is not the one before it. If anything fails, nothing remains.
        """
        if version.number > 0 and version.number != (following := self.next()):
            raise VersionTaken(f"version {version.number} cannot follow version {following - 1}")
        folder = self.place(version.number)
        try:
            folder.mkdir(mode=0o700, parents=True)
            fill(folder)
            written = replace(version, files=hashes_of(folder))
            self._commit(written, folder)
        except BaseException:
            if not (folder / manifest.NAME).exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return written

    def _commit(self, version: Version, folder: Path) -> None:
        """Flush the files, then rename the manifest into place."""
        draft(folder, manifest.dump(version)).rename(folder / manifest.NAME)
        sync(folder)

    def prune(self, keep: int, *, but: Collection[int] = ()) -> tuple[int, ...]:
        """Delete all weights but those of the newest `keep` versions, of `but`, of the ladder, and the base;
        the numbers deleted."""
        return self.remove_weights(outdated(self.numbers(), keep=keep, but=but))

    def trim(self, keep: int, *, but: Collection[int] = ()) -> None:
        """Delete from this disk what other machines have, except the newest `keep` and `but`."""

    def remove_weights(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Delete the weights of these versions, whose manifests stay; returns those that had any.

        If it is killed halfway, `holds` stays true while anything learned is left.
        """
        with self.writing():
            return self._remove(sorted(set(numbers)))

    def remove_forgotten(self, turns: Collection[str] = ()) -> None:
        """Delete the weights of all versions that hold a forgotten turn, or one of `turns`.

        The newest of an adapter stays: it is served until a version without them follows.
        VersionTaken if it holds one of `turns`, as after a rollback that came meanwhile; nothing is deleted.
        """
        with self.writing():
            history = self.of(None).history()
            newest = {chain[-1] for chain in self.chains().values()}
            by_number = {version.number: version for version in history}
            if again := [number for number in newest if turns_in(number, by_number).intersection(turns)]:
                raise VersionTaken(f"version {min(again)} holds turns again that were to be forgotten")
            self._remove(set(tainted(history, self.holds, turns)) - newest)

    def _remove(self, numbers: Collection[int]) -> tuple[int, ...]:
        return self._unlink(numbers)

    def _unlink(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Delete the weights of these versions from this disk."""
        old = [number for number in numbers if self._here(number, is_learned)]
        for number in old:
            files = [path for path in self.place(number).iterdir() if path.name != manifest.NAME]
            for path in sorted(files, key=lambda path: is_learned(path.name), reverse=True):
                path.unlink()
        return tuple(old)

    def _sweep(self) -> None:
        for number in self._folders():
            if not self._manifest(number).exists():
                shutil.rmtree(self.place(number))


def is_rung(number: int, *, newest: int) -> bool:
    """Whether a version is a rung of the ladder: one at each doubling of the distance from the newest. An
    adapter's versions count from 1 here, whatever their numbers.

    A number with z trailing zero bits stays while it is less than 2^(z + 1) behind. So about log2(newest)
    versions stay, and from any distance d back to 3 d there is one, or the base.
    """
    return newest - number < 2 * (number & -number)


def outdated(numbers: Sequence[int], *, keep: int, but: Collection[int]) -> list[int]:
    """Of an adapter's ascending numbers, those neither among the newest `keep`, nor in `but`, nor a rung."""
    learned = [number for number in numbers if number > 0]
    older = enumerate(learned[: max(0, len(learned) - keep)], start=1)
    return [
        number for place, number in older if number not in but and not is_rung(place, newest=len(learned))
    ]


def learned(number: int, versions: Mapping[int, Version]) -> frozenset[int]:
    """The update versions whose steps are in the weights of `number`."""
    found: set[int] = set()
    for version in _back(number, versions):
        if version.origin is Origin.UPDATE:
            found.add(version.number)
        found.update(version.replays)
    return frozenset(found)


def turns_in(number: int, versions: Mapping[int, Version]) -> frozenset[str]:
    """The turns that the weights of `number` were trained on."""
    steps = [versions[step] for step in learned(number, versions) if step in versions]
    trained = {turn for step in steps for turn in (*step.turns, *step.replayed)}
    return frozenset(trained.difference(*(version.without for version in _back(number, versions))))


def _back(number: int, versions: Mapping[int, Version]) -> Iterator[Version]:
    """The version, and those that its weights came from, the newest first."""
    at: int | None = number
    while at is not None and at in versions:
        version = versions[at]
        yield version
        source = {Origin.ROLLBACK: version.restores, Origin.REPLAY: version.begins}
        at = source.get(version.origin, version.parent)


def taken_back(target: int, versions: Sequence[Version]) -> tuple[int, ...]:
    """The updates that a rollback to `target` reverts: in the newest weights, not in its own. `versions` are
    those of one adapter."""
    return _less(max(version.number for version in versions), target, versions)


def brought_back(target: int, versions: Sequence[Version]) -> tuple[int, ...]:
    """The updates that a rollback to `target` brings back: in its weights, not in the newest."""
    return _less(target, max(version.number for version in versions), versions)


def _less(one: int, other: int, versions: Sequence[Version]) -> tuple[int, ...]:
    by_number = {version.number: version for version in versions}
    return tuple(sorted(learned(one, by_number) - learned(other, by_number)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An update to run again, without the forgotten turns."""

    version: Version
    turns: tuple[str, ...]
    replayed: tuple[str, ...]
    whole: bool
    """Whether nothing was left out, neither here nor in the updates before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The version to start from, and the updates to run again after it."""

    newest: int
    """The adapter's newest version: if another one comes, the plan is void."""
    start: int
    """The version whose weights and optimiser state come first."""
    steps: tuple[Step, ...]
    undone: tuple[int, ...]
    """All updates of the newest weights that `start` does not hold."""


def plan(versions: Sequence[Version], turns: Collection[str], resumes: Callable[[int], bool]) -> Plan | None:
    """How to free the newest weights of these turns; None: they do not hold any.

    It begins as late as possible with a version that `resumes`. An update all of whose new turns are
    forgotten is left out: without them it would not have begun.
    """
    by_number = {version.number: version for version in versions}
    newest = max(by_number, default=0)
    present = turns_in(newest, by_number)
    if not present.intersection(turns):
        return None
    chain = sorted(learned(newest, by_number))
    staying = present.difference(turns)
    start, done = _start(chain, by_number, staying, resumes)
    before = {turn for number in chain[:done] for turn in _turns(by_number[number])}
    steps, whole = list[Step](), turns_in(start, by_number) == before
    for version in (by_number[number] for number in chain[done:]):
        whole = whole and staying >= set(_turns(version))
        if (step := _step(version, staying, whole=whole)) is not None:
            steps.append(step)
    return Plan(newest=newest, start=start, steps=tuple(steps), undone=tuple(chain[done:]))


def _turns(version: Version) -> tuple[str, ...]:
    return (*version.turns, *version.replayed)


def _start(
    chain: Sequence[int],
    versions: dict[int, Version],
    staying: Collection[str],
    resumes: Callable[[int], bool],
) -> tuple[int, int]:
    """The version that holds most of the chain's first updates, and nothing forgotten; and how many."""
    found = (0, 0)
    for number in sorted(versions):
        inside = learned(number, versions)
        fits = inside == set(chain[: len(inside)]) and turns_in(number, versions) <= set(staying)
        if fits and len(inside) >= found[1] and resumes(number):
            found = number, len(inside)
    return found


def _step(version: Version, staying: Collection[str], *, whole: bool) -> Step | None:
    new = tuple(turn for turn in version.turns if turn in staying)
    replayed = tuple(turn for turn in version.replayed if turn in staying)
    if not (new or replayed) or (version.turns and not new):
        return None
    return Step(version=version, turns=new, replayed=replayed, whole=whole)


def tainted(
    versions: Sequence[Version], holds: Callable[[int], bool], turns: Collection[str] = ()
) -> tuple[int, ...]:
    """Versions that hold a turn that was forgotten, or one of `turns`, and of which anything is staying."""
    by_number = {version.number: version for version in versions}
    gone = {turn for version in versions for turn in version.without}.union(turns)
    if not gone:
        return ()
    return tuple(number for number in by_number if holds(number) and gone & turns_in(number, by_number))
