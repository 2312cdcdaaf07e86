"""Versions that several machines read and write, at a place that they all reach.

A version's files go there first, then its manifest, which is the commit; the folder on this disk follows.
Files that are only there are copied here when they are needed. Each step may be killed: without its manifest
nothing is a version, on either side.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from afterwit.checkpoints import manifest
from afterwit.checkpoints.files import digest_of, draft, exclusive, is_learned, is_state, is_weights, sync
from afterwit.checkpoints.remote import Remote
from afterwit.checkpoints.versions import Versions
from afterwit.errors import AlreadyRunning, VersionDamaged, VersionsRefused, VersionsUnavailable
from afterwit.version import Version


@dataclass(frozen=True, kw_only=True)
class SharedVersions(Versions):
    """Methods that use `remote` raise VersionsUnavailable if it cannot be read or written now."""

    remote: Remote
    state_every: int = 1
    """Versions from one to the next whose optimiser state goes to `remote`."""
    _listed: list[Mapping[str, int]] = field(default_factory=list, init=False, repr=False, compare=False)
    """The files of `remote` as last listed; []: they may have changed since."""

    def follow(self) -> None:
        """Does nothing while another process of this machine writes.

        VersionsRefused if the folder has not the versions that those of the others go on from.
        """
        self._listed.clear()
        after = next(self._downwards(), -1) + 1
        if not self.remote.manifests([after]):
            return
        with suppress(AlreadyRunning), exclusive(self._lock, purpose="a version is written", wait=False):
            self._sweep()
            self._follow()

    def share(self) -> None:
        """VersionsRefused if the remote cannot be written."""
        with self.writing():
            self.remote.check()
            committed, files = set(self.remote.numbers()), set(self.remote.files())
            for version in self.of(None).all():
                self._send(version, files)
                if version.number not in committed:
                    self.remote.commit(version.number, self._text(version.number))

    @contextmanager
    def writing(self) -> Iterator[None]:
        with super().writing():
            self._listed.clear()
            self._follow()
            yield
            self._listed.clear()

    def weights(self, number: int, *, state: bool = False) -> Path:
        """Copies missing files to this disk first. VersionDamaged if one is not as it was written."""
        folder = super().weights(number, state=state)
        if folder != self.base:
            bring(self._read(number), folder, self.remote, state=state)
        return folder

    def has_weights(self, number: int) -> bool:
        """A remote that does not answer has none."""
        return super().has_weights(number) or self._are_there(number, is_weights)

    def resumes(self, number: int) -> bool:
        if self._is_base(number):
            return True
        return self.has_weights(number) and (self._has_state(number) or self._are_there(number, is_state))

    def holds(self, number: int) -> bool:
        if super().holds(number):
            return True
        version, there = self.get(number), self._there()
        return version is not None and any(
            digest in there for name, digest in version.files.items() if is_learned(name)
        )

    def prune(self, keep: int, *, but: Collection[int] = ()) -> tuple[int, ...]:
        """The ladder stays at the remote; this disk keeps only the newest."""
        removed = super().prune(keep, but=but)
        self.trim(keep, but=but)
        return removed

    def trim(self, keep: int, *, but: Collection[int] = ()) -> None:
        for adapter, chain in self.chains().items():
            older = chain[1 : max(1, len(chain) - keep)] if self.adapter in (None, adapter) else []
            self._unlink(
                number for number in older if number not in but and self._are_there(number, is_weights)
            )

    def _remove(self, numbers: Collection[int]) -> tuple[int, ...]:
        """Also removes files that no manifest names, which an abandoned or killed update may have left."""
        removed = self._unlink(numbers)
        stays = {
            digest
            for version in self.of(None).all()
            if version.number not in numbers
            for digest in version.files.values()
        }
        self.remote.remove(sorted(self.remote.files().keys() - stays))
        return removed

    def _follow(self) -> None:
        """Write the manifests that are there and not here."""
        here, there = set(self._numbers()), self.remote.numbers()
        common = max(here.intersection(there), default=None)
        if common is not None and self.remote.manifests([common])[common] != self._text(common):
            raise VersionsRefused(
                f"version {common} at {self.remote.place} is not the one in {self.root}: another home writes "
                "there; name another place in versions.url, or begin with an empty home"
            )
        for number, text in self.remote.manifests([number for number in there if number not in here]).items():
            try:
                manifest.parse(text, number)
            except ValueError as error:
                raise VersionsRefused(
                    f"the manifest of version {number} at {self.remote.place} is refused ({error}): bring it "
                    "back from a copy, or remove it and those after it, and look who may write there"
                ) from error
            folder = self.place(number)
            folder.mkdir(mode=0o700, parents=True)
            draft(folder, text).rename(folder / manifest.NAME)
            sync(folder)

    def _commit(self, version: Version, folder: Path) -> None:
        """Files, then the manifest, then its rename here. Then again the files that another process took for
        leftovers meanwhile."""
        self._send(version, set(self.remote.files()))
        text = manifest.dump(version)
        drafted = draft(folder, text)
        self.remote.commit(version.number, text)
        drafted.rename(folder / manifest.NAME)
        sync(folder)
        self._send(version, set(self.remote.files()))

    def _send(self, version: Version, there: set[str]) -> None:
        state = version.number % self.state_every == 0
        send(version, self.place(version.number), self.remote, there, state=state)

    def _text(self, number: int) -> str:
        return (self.place(number) / manifest.NAME).read_text()

    @property
    def _where(self) -> str:
        return f"{self.root} or at {self.remote.place}"

    def _expected(self, version: Version) -> Mapping[str, str]:
        """The optimiser's state may be missing."""
        place = self.place(version.number)
        return {
            name: digest
            for name, digest in version.files.items()
            if not is_state(name) or (place / name).exists()
        }

    def _remedy(self, damaged: int) -> str:
        if self._are_there(damaged, is_weights):
            return f"delete that file: it is brought again from {self.remote.place}"
        return super()._remedy(damaged)

    def _has_state(self, number: int) -> bool:
        place = self.place(number)
        return all((place / name).exists() for name in self._read(number).files if is_state(name))

    def _are_there(self, number: int, kind: Callable[[str], bool]) -> bool:
        """Whether all files of a kind are at the remote, which has none if it does not answer."""
        version = self.get(number)
        digests = [] if version is None else [digest for name, digest in version.files.items() if kind(name)]
        try:
            return bool(digests) and all(digest in self._there() for digest in digests)
        except VersionsUnavailable:
            self._listed[:] = [{}]
            return False

    def _there(self) -> Mapping[str, int]:
        """The files of the remote, listed once."""
        if not self._listed:
            self._listed[:] = [self.remote.files()]
        return self._listed[0]


def send(version: Version, folder: Path, remote: Remote, there: set[str], *, state: bool) -> None:
    """Copy the version's files to the remote, except those `there`, to which they are added; the optimiser's
    only with `state`."""
    for name, digest in version.files.items():
        if digest not in there and (state or not is_state(name)) and (folder / name).exists():
            remote.put(digest, folder / name)
            there.add(digest)


def bring(version: Version, folder: Path, remote: Remote, *, state: bool) -> None:
    """Copy the version's missing files to this disk; the optimiser's only with `state`.

    Each is compared with its digest before it gets its name; VersionDamaged if it differs. One process of a
    machine copies at a time.
    """

    def missing() -> dict[str, str]:
        return {
            name: digest
            for name, digest in version.files.items()
            if (state or not is_state(name)) and not (folder / name).exists()
        }

    if not missing():
        return
    there = remote.files()
    with exclusive(folder.parent / ".bring.lock", purpose="a version is being brought", wait=True):
        drafts = folder.parent / ".brought"
        shutil.rmtree(drafts, ignore_errors=True)
        drafts.mkdir(mode=0o700)
        try:
            weights_last = sorted(missing().items(), key=lambda item: is_weights(item[0]))
            for name, digest in weights_last:
                if digest in there:
                    _bring(drafts / name, digest, remote, f"{folder.name}/{name}")
                    (drafts / name).rename(folder / name)
            sync(folder)
        finally:
            shutil.rmtree(drafts, ignore_errors=True)


def _bring(draft: Path, digest: str, remote: Remote, name: str) -> None:
    remote.get(digest, draft)
    if digest_of(draft) != digest:
        raise VersionDamaged(f"{name} is damaged at {remote.place} (files/{digest}): its hash is another")
    sync(draft)
