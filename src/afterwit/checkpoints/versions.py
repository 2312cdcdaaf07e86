"""The folder of versions: `NNNNNN/` is a version once its manifest is there, which is written last.

Manifests stay, because they record which turns have trained; old weights are deleted. Version 0 is the base:
its folder holds a manifest and no weights, and so does the folder of a rollback to it. Versions of all
adapters share the folder and the numbers: a number names one version of one adapter.

Machines can share versions at a `remote`. A version's files go there first, then its manifest, which is the
commit; the folder on this disk follows. Files that are only there are copied here when they are needed. Each
step may be killed: without its manifest nothing is a version, on either side.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from afterwit.checkpoints import manifest
from afterwit.checkpoints.manifest import (
    FORMER_STATE,
    STATE,
    digest_of,
    draft,
    exclusive,
    first_damaged,
    hashes_of,
    is_learned,
    is_state,
    is_weights,
    room_in,
    sync,
)
from afterwit.checkpoints.remote import Remote
from afterwit.errors import (
    AlreadyRunning,
    SettingError,
    VersionDamaged,
    VersionsRefused,
    VersionsUnavailable,
    VersionTaken,
)
from afterwit.text import listed
from afterwit.turn import SHARED
from afterwit.version import Origin, Version, brought_back, tainted, taken_back, turns_in

FOLDER = re.compile("[0-9]{6}")

LOCK = ".write.lock"

SCRATCH = ".scratch-"
"""Prefix of a folder of temporary versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """With a `remote`, methods raise VersionsUnavailable if it cannot be read or written now."""

    root: Path
    base: Path
    adapter: str | None = None
    """List this adapter's versions and the base only; None: those of all adapters."""
    remote: Remote | None = None
    state_every: int = 1
    """Versions from one to the next whose optimiser state goes to `remote`."""
    _listed: list[Mapping[str, int]] = field(default_factory=list, init=False, repr=False, compare=False)
    """The files of `remote` as last listed; []: they may have changed since."""

    def of(self, adapter: str | None) -> Versions:
        """The same folder, limited to an adapter; None: not limited."""
        return replace(self, adapter=adapter)

    def rename_states(self) -> None:
        """Give the states that an older Afterwit wrote the name that no engine loads."""
        for path in self.root.glob(f"*/{FORMER_STATE}"):
            with suppress(FileNotFoundError):  # another process does so too
                path.rename(path.with_name(STATE))

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
                f"{path} cannot be read ({error}): restore it from a copy, or remove the folder "
                f"{path.parent}; its turns then train again"
            ) from error

    def newest(self) -> int:
        """The newest version's number; 0 before the first update."""
        return next((number for number in self._downwards() if self._is_listed(number)), 0)

    def numbers(self) -> list[int]:
        """Every version's number, ascending. One whose manifest cannot be read is in every adapter's list."""
        return [number for number in list(self._downwards())[::-1] if self._is_listed(number)]

    def next(self) -> int:
        """The number of the version that is written next, whichever adapter it is of."""
        return next(self._downwards(), 0) + 1

    def _downwards(self) -> Iterator[int]:
        """Every version's number, descending. Lazy: looks into no more folders than needed."""
        numbers = sorted(self._folders(), reverse=True)
        return (number for number in numbers if self._manifest(number).exists())

    def _folders(self) -> list[int]:
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

    def has_weights(self, number: int) -> bool:
        """Whether the version can be served. A remote that does not answer has nothing."""
        return self.on_disk(number) or self._is_base(number) or self._there(number, is_weights)

    def on_disk(self, number: int) -> bool:
        return self._here(number, is_weights)

    def resumes(self, number: int) -> bool:
        """Whether a learner can continue from the version exactly."""
        if self._is_base(number):
            return True
        if not self.has_weights(number):
            return False
        place, states = self.place(number), filter(is_state, self._read(number).files)
        return all((place / name).exists() for name in states) or self._there(number, is_state)

    def holds(self, number: int) -> bool:
        """Whether anything that the version learned still exists."""
        if self._here(number, is_learned):
            return True
        if self.remote is None or (version := self.get(number)) is None:
            return False
        there = self._files_of(self.remote)
        return any(digest in there for name, digest in version.files.items() if is_learned(name))

    def _here(self, number: int, kind: Callable[[str], bool]) -> bool:
        place = self.place(number)
        return (place / manifest.NAME).exists() and any(kind(path.name) for path in place.iterdir())

    def _there(self, number: int, kind: Callable[[str], bool]) -> bool:
        """Whether all files of a kind are at the remote, which has none if it does not answer."""
        if self.remote is None or (version := self.get(number)) is None:
            return False
        digests = [digest for name, digest in version.files.items() if kind(name)]
        try:
            return bool(digests) and all(digest in self._files_of(self.remote) for digest in digests)
        except VersionsUnavailable:
            self._listed.append({})
            return False

    def _files_of(self, remote: Remote) -> Mapping[str, int]:
        if not self._listed:
            self._listed.append(remote.files())
        return self._listed[0]

    def _is_base(self, number: int) -> bool:
        """Whether it is version 0 or a rollback to it, directly or through other rollbacks."""
        while number > 0:
            version = self.get(number)
            if version is None or version.restores is None:
                return False
            number = version.restores
        return True

    def weights(self, number: int, *, state: bool = False) -> Path:
        """The folder with the version's weights, whole or an adapter; the model's folder if it is the base.
        Missing files are copied from the remote first.

        With `state`, the optimiser's state is there too, if it still exists. SettingError if the weights are
        gone, VersionDamaged if a file of the remote is not as it was written.
        """
        if self._is_base(number):
            return self.base
        if not self.has_weights(number):
            where = str(self.root) if self.remote is None else f"{self.root} or at {self.remote.place}"
            others = ", ".join(str(number) for number in self.numbers() if self.has_weights(number))
            raise SettingError(f"the weights of version {number} are not in {where}; those of {others} are")
        if self.remote is not None:
            self._bring(self._read(number), self.remote, state=state)
        return self.place(number)

    def _bring(self, version: Version, remote: Remote, *, state: bool) -> None:
        """Copy the version's missing files to this disk; the optimiser's only with `state`.

        Each is compared with its digest before it gets its name. One process of a machine copies at a time.
        """
        folder, drafts = self.place(version.number), self.root / ".brought"

        def missing() -> list[tuple[str, str]]:
            wanted = ((name, digest) for name, digest in version.files.items() if state or not is_state(name))
            return [(name, digest) for name, digest in wanted if not (folder / name).exists()]

        if not missing():
            return
        there = remote.files()
        lock = exclusive(self.root / ".bring.lock", purpose="a version is being brought", wait=True)
        with lock, room_in(self.root):
            shutil.rmtree(drafts, ignore_errors=True)
            drafts.mkdir(mode=0o700)
            try:
                for name, digest in sorted(missing(), key=lambda item: is_weights(item[0])):  # weights last
                    if digest not in there:
                        continue
                    remote.get(digest, drafts / name)
                    if digest_of(drafts / name) != digest:
                        raise VersionDamaged(
                            f"{folder.name}/{name} is damaged at {remote.place} (files/{digest}): its hash"
                            " differs"
                        )
                    sync(drafts / name)
                    (drafts / name).rename(folder / name)
                sync(folder)
            finally:
                shutil.rmtree(drafts, ignore_errors=True)

    def verify(self, number: int) -> None:
        """Compare the version's files with the hashes in its manifest; reads them all.

        Raises VersionDamaged for the first file that differs, with the remedy: bring it again, or return to
        the adapter's newest intact version before it. The base has no hashes, and is always intact. Pass a
        version that `has_weights`.
        """
        if (problem := self._damage(number)) is None:
            return
        if self.remote is not None and self._there(number, is_weights):
            raise VersionDamaged(
                f"{problem}; delete that file, and it is fetched again from {self.remote.place}"
            )
        chain = self.of(manifest.adapter_in(self._manifest(number)))
        earlier = (n for n in reversed(chain.numbers()) if n < number and self.has_weights(n))
        whole = next((n for n in earlier if self._damage(n) is None), 0)
        remedy = f"restore it from a copy, or return to version {whole} with `afterwit rollback {whole}`"
        raise VersionDamaged(f"{problem}; {remedy}")

    def _damage(self, number: int) -> str | None:
        version, place = self.get(number), self.place(number)
        if version is None or self._is_base(number):
            return None
        expected = {  # the optimiser's state may be missing if a remote keeps the versions
            name: digest
            for name, digest in version.files.items()
            if self.remote is None or not is_state(name) or (place / name).exists()
        }
        return first_damaged(place, expected)

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

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The lock under which versions are written. Waits for it, then removes unfinished versions."""
        with exclusive(self.root / LOCK, purpose="a version is being written", wait=True):
            self._listed.clear()
            self._adopt()
            yield
            self._listed.clear()

    def write(self, version: Version, fill: Callable[[Path], None]) -> Version:
        """Write `version`: `fill` puts its files into a new folder, then its manifest is renamed into place.

        Returns the version with the hashes of its files. Call it while `writing`. Raises VersionTaken if the
        newest version is not the one before it, DiskFull if there is no room. If anything fails, nothing
        remains.
        """
        if version.number > 0 and version.number != (following := self.next()):
            raise VersionTaken(f"version {version.number} cannot follow version {following - 1}")
        folder = self.place(version.number)
        try:
            with room_in(self.root):
                folder.mkdir(mode=0o700, parents=True)
                fill(folder)
            written = replace(version, files=hashes_of(folder))
            if self.remote is not None:
                self._send(written, self.remote, set(self.remote.files()))
            with room_in(self.root):
                drafted = draft(folder, text := manifest.dump(written))
            if self.remote is not None:
                self.remote.commit(version.number, text)
            drafted.rename(folder / manifest.NAME)
            sync(folder)
            if self.remote is not None:  # again what another process took for leftovers meanwhile
                self._send(written, self.remote, set(self.remote.files()))
        except BaseException:
            if not (folder / manifest.NAME).exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return written

    def _send(self, version: Version, remote: Remote, there: set[str]) -> None:
        """Copy the version's files to the remote, except those `there`, to which they are added."""
        folder, state = self.place(version.number), version.number % self.state_every == 0
        for name, digest in version.files.items():
            if digest not in there and (state or not is_state(name)) and (folder / name).exists():
                remote.put(digest, folder / name)
                there.add(digest)

    def share(self) -> None:
        """Give other machines the versions that only this disk has. Call it while `learning`.

        VersionsRefused if the remote cannot be written.
        """
        if self.remote is None:
            return
        with self.writing():
            self.remote.check()
            committed, files = set(self.remote.numbers()), set(self.remote.files())
            for version in self.of(None).all():
                self._send(version, self.remote, files)
                if version.number not in committed:
                    self.remote.commit(version.number, self._manifest(version.number).read_text())

    def follow(self) -> None:
        """Read the versions that other machines wrote, unless another process of this machine writes.

        VersionsRefused if the folder has not the versions that those of the others go on from.
        """
        self._listed.clear()
        if self.remote is None or not self.remote.manifests([next(self._downwards(), -1) + 1]):
            return
        lock = exclusive(self.root / LOCK, purpose="a version is written", wait=False)
        with suppress(AlreadyRunning), lock:
            self._adopt()

    def _adopt(self) -> None:
        """Remove unfinished versions, and write the manifests that are at the remote and not here."""
        for number in self._folders():
            if not self._manifest(number).exists():
                shutil.rmtree(self.place(number))
        if self.remote is None:
            return
        here, there = set(self._downwards()), self.remote.numbers()
        common = max(here.intersection(there), default=None)
        ours = None if common is None else self._manifest(common).read_text()
        if common is not None and self.remote.manifests([common])[common] != ours:
            raise VersionsRefused(
                f"version {common} at {self.remote.place} is not the one in {self.root}: another home writes "
                "there; name another place in versions.url, or begin with an empty home"
            )
        for number, text in self.remote.manifests([number for number in there if number not in here]).items():
            try:
                manifest.parse(text, number)
            except ValueError as error:
                raise VersionsRefused(
                    f"the manifest of version {number} at {self.remote.place} is refused ({error}): restore "
                    "it from a copy, or remove it and all later ones, and check who may write there"
                ) from error
            folder = self.place(number)
            with room_in(self.root):
                folder.mkdir(mode=0o700, parents=True)
                draft(folder, text).rename(folder / manifest.NAME)
            sync(folder)

    def prune(self, keep: int, *, but: Collection[int] = ()) -> tuple[int, ...]:
        """Delete all weights but those of the newest `keep` versions, of `but`, of the ladder, and the base;
        the numbers deleted. With a remote, the ladder stays there, and this disk keeps only the newest."""
        removed = self.remove_weights(outdated(self.numbers(), keep=keep, but=but))
        self.trim(keep, but=but)
        return removed

    def trim(self, keep: int, *, but: Collection[int] = ()) -> None:
        """Delete from this disk what the remote has, except the newest `keep` of each adapter and `but`."""
        for adapter, chain in self.chains().items() if self.remote is not None else ():
            older = chain[1 : max(1, len(chain) - keep)] if self.adapter in (None, adapter) else []
            self._unlink(number for number in older if number not in but and self._there(number, is_weights))

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
        """From this disk and the remote; there also the files that no manifest names, which an abandoned or
        killed update may have left."""
        removed = self._unlink(numbers)
        if self.remote is not None:
            staying = (version for version in self.of(None).all() if version.number not in numbers)
            named = {digest for version in staying for digest in version.files.values()}
            self.remote.remove(sorted(self.remote.files().keys() - named))
        return removed

    def _unlink(self, numbers: Iterable[int]) -> tuple[int, ...]:
        old = [number for number in numbers if self._here(number, is_learned)]
        for number in old:
            files = [path for path in self.place(number).iterdir() if path.name != manifest.NAME]
            for path in sorted(files, key=lambda path: is_learned(path.name), reverse=True):
                path.unlink(missing_ok=True)  # another process trims too
        return tuple(old)


def outdated(numbers: Sequence[int], *, keep: int, but: Collection[int]) -> list[int]:
    """Of an adapter's ascending numbers, those neither among the newest `keep`, nor in `but`, nor a rung."""
    own = [number for number in numbers if number > 0]
    older = enumerate(own[: max(0, len(own) - keep)], start=1)
    return [number for place, number in older if number not in but and not is_rung(place, newest=len(own))]


def is_rung(number: int, *, newest: int) -> bool:
    """Whether a version is a rung of the ladder: one at each doubling of the distance from the newest. An
    adapter's versions count from 1 here, whatever their numbers.

    A number with z trailing zero bits stays while it is less than 2^(z + 1) behind. So about log2(newest)
    versions stay, and from any distance d back to 3 d there is one, or the base.
    """
    return newest - number < 2 * (number & -number)


def roll_back(
    versions: Versions,
    target: int,
    *,
    now: float,
    after: int | None = None,
    forgets: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Version:
    """Write the version that restores `target`, for the adapter of the versions, or else of `target` (of the
    base: the shared one). The store's `commit_version` then marks the turns it reverts.

    `after` is the adapter's newest version that this was decided on. `forgets` are sessions that end with it,
    `without` the trained turns of these and of all sessions that were forgotten before.

    Raises SettingError if `target` is the newest, unknown, holds what was forgotten, or its weights are gone,
    VersionDamaged if they are damaged, and VersionTaken if there is a version after `after`; nothing is
    written then.
    """
    versions.follow()
    if versions.adapter is None:
        named = versions.get(target) if target else None
        versions = versions.of(SHARED if named is None else named.adapter)
    with versions.writing():
        chain = versions.all()
        old = _checked(versions, chain, target, after)
        version = Version(
            number=versions.next(),
            parent=chain[-1].number,
            origin=Origin.ROLLBACK,
            created=now,
            restores=target,
            reverts=taken_back(target, chain),
            returns=brought_back(target, chain),
            forgets=tuple(forgets),
            without=tuple(without),
            probe=old.probe,
            adapter=versions.adapter or SHARED,
        )
        source = versions.weights(target, state=True)
        versions.verify(target)

        def restore(folder: Path) -> None:
            for path in source.iterdir() if source != versions.base else ():
                if path.is_file() and path.name != manifest.NAME:
                    link(path.resolve(), folder / path.name)

        return versions.write(version, restore)


def _checked(versions: Versions, chain: Sequence[Version], target: int, after: int | None) -> Version:
    """The version to return to. Raises as `roll_back` does."""
    whose = "" if versions.adapter in (None, SHARED) else f" of the adapter {versions.adapter}"
    if not chain:
        raise SettingError("nothing has been learned here yet: there is no version to return from")
    by_number, newest = {version.number: version for version in chain}, chain[-1].number
    if target not in by_number:
        raise SettingError(f"there is no version {target}{whose}; there are: {listed([*by_number])}")
    if after not in (None, newest):
        raise VersionTaken(f"version {newest} came after version {after}")
    if target == newest:
        raise SettingError(f"version {target} is the newest already{whose}")
    gone = {turn for version in versions.of(None).history() for turn in version.without}
    if gone & turns_in(target, by_number):
        raise SettingError(f"version {target} holds turns that were forgotten since")
    return by_number[target]


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy if the disk has no links. A version's files never change."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
