"""The folder of versions: `NNNNNN/` is a version once its manifest is there, which is written last.

Manifests are kept, because they say which turns have trained; old weights are deleted. Version 0 is the base:
its folder holds a manifest and no weights. So does the folder of a rollback to it.

Versions of all adapters share the folder and the numbers: a number names one version of one adapter.
`SharedVersions` are versions that other machines read and write too.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from afterwit.checkpoints import manifest
from afterwit.checkpoints.files import is_learned, is_weights
from afterwit.checkpoints.flushing import draft, sync
from afterwit.checkpoints.forgetting import tainted
from afterwit.checkpoints.hashes import first_damaged, hashes_of
from afterwit.checkpoints.ladder import outdated
from afterwit.checkpoints.lineage import turns_in
from afterwit.checkpoints.lock import exclusive
from afterwit.core.errors import SettingError, VersionDamaged, VersionTaken
from afterwit.core.version import Version

FOLDER = re.compile("[0-9]{6}")
SCRATCH = ".scratch-"
"""How a folder of versions that do not stay is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """`root` is the folder of versions, `base` the folder of the model that was trained."""

    root: Path
    base: Path
    adapter: str | None = None
    """List this adapter's versions and the base only; None: those of all adapters."""

    def of(self, adapter: str | None) -> Versions:
        """The same folder as an adapter sees it; None: as it is."""
        return replace(self, adapter=adapter)

    def chains(self) -> dict[str, list[int]]:
        """By adapter with a version of its own, the numbers of the base and of its versions, ascending."""
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
        """As `all`, without metrics, effects and recipes. What was read before is not read again."""
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
        """Every version's number, ascending. A version whose manifest cannot be read is everybody's."""
        return [number for number in self._numbers() if self._is_listed(number)]

    def next(self) -> int:
        """The number of the version that is written next, whichever adapter it is of."""
        return next(self._downwards(), 0) + 1

    def _numbers(self) -> list[int]:
        return list(self._downwards())[::-1]

    def _downwards(self) -> Iterator[int]:
        """Every version's number, descending. Looks into no more folders than are asked for."""
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
        """Learn of the versions that other machines wrote."""

    def share(self) -> None:
        """Give the versions that only this disk has to other machines. Call it while `learning`."""

    def weights(self, number: int, *, state: bool = False) -> Path:
        """The folder with the version's weights, whole or an adapter; the model's folder if it is the base.

        With `state`, the optimiser's state is there too, if it is kept. SettingError if the weights are gone.
        """
        if self._is_base(number):
            return self.base
        if not self.has_weights(number):
            kept = ", ".join(str(number) for number in self.numbers() if self.has_weights(number))
            raise SettingError(
                f"the weights of version {number} are not in {self._where}; those of {kept} are"
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
        """Whether a learner can go on from the version as if it had never stopped."""
        return self.has_weights(number)

    def holds(self, number: int) -> bool:
        """Whether anything that the version learned is still kept."""
        return self._here(number, is_learned)

    def _here(self, number: int, kind: Callable[[str], bool]) -> bool:
        """Whether the version has a file of a kind on this disk."""
        place = self.place(number)
        return (place / manifest.NAME).exists() and any(kind(path.name) for path in place.iterdir())

    def verify(self, number: int) -> None:
        """Compare the version's files with the hashes in its manifest; reads them all.

        Raises VersionDamaged for the first file that differs, with what to do. The base has no hashes.
        Pass a version whose weights are there.
        """
        if (problem := self._damage(number)) is not None:
            raise VersionDamaged(f"{problem}; {self._remedy(number)}")

    def _damage(self, number: int) -> str | None:
        version = self.get(number)
        if version is None or self._is_base(number):
            return None
        return first_damaged(self.place(number), self._expected(version))

    def _expected(self, version: Version) -> Mapping[str, str]:
        """The files of a version whose weights are here, each with its hash."""
        return version.files

    def _remedy(self, damaged: int) -> str:
        """What helps: the adapter's newest version before it that is whole. The base always is."""
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

        What a killed learner left in its `scratch` is removed.
        """
        with exclusive(self.root / ".learner.lock", purpose="only one learner may run", wait=False):
            for left in self.root.glob(f"{SCRATCH}*"):
                shutil.rmtree(left, ignore_errors=True)
            yield

    @contextmanager
    def scratch(self) -> Iterator[Versions]:
        """Versions of the same base on this disk alone, gone at the end. Call it while `learning`."""
        with tempfile.TemporaryDirectory(dir=self.root, prefix=SCRATCH) as folder:
            yield Versions(root=Path(folder), base=self.base)

    @property
    def _lock(self) -> Path:
        return self.root / ".write.lock"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The lock under which versions are written. Waits for it, and removes unfinished versions."""
        with exclusive(self._lock, purpose="a version is being written", wait=True):
            self._sweep()
            yield

    def write(self, version: Version, fill: Callable[[Path], None]) -> Version:
        """Make `version`: `fill` puts its files into a new folder, then its manifest is renamed into place.

        Returns the version with the hashes of its files. Call it while `writing`. Raises VersionTaken if the
        newest version is not the one before it. If anything fails, nothing of it remains.
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
        """Delete from this disk what other machines keep, unless it is of the newest `keep` or of `but`."""

    def remove_weights(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Delete the weights of these versions, whose manifests stay; returns those that had any.

        Killed in the middle, `holds` is still true as long as anything learned is there.
        """
        with self.writing():
            return self._remove(sorted(set(numbers)))

    def remove_forgotten(self, turns: Collection[str] = ()) -> None:
        """Delete the weights of all versions that hold a forgotten turn, or one of `turns`.

        The newest of an adapter stays: it is served until a version follows that is free of them.
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
