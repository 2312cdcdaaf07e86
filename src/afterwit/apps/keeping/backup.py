"""A copy of a home in one file, taken while its stages run.

The store is copied first, then the versions: a version that the store does not know yet is committed from its
manifest at the next start, as after a crash. The other way round the store would miss versions.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from afterwit import __version__
from afterwit.apps.build import versions_of
from afterwit.apps.config import versions_settings
from afterwit.apps.home import STORE, VERSIONS
from afterwit.apps.keeping.archive import HEADER, SMALL_FILES, Header
from afterwit.apps.keeping.drafts import draft_beside
from afterwit.checkpoints import Versions
from afterwit.checkpoints.files import is_state
from afterwit.checkpoints.hashes import hashes_of
from afterwit.checkpoints.manifest import NAME as MANIFEST
from afterwit.core.errors import SettingError
from afterwit.core.version import Version
from afterwit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What a backup holds: how many versions, and how many of them with their weights."""

    versions: int
    with_weights: int
    size: int


def back_up(home: Path, store: Store, file: Path, *, now: float) -> Copied:
    """Write the home into `file`, which replaces an older one when it is whole. Its owner alone may read it.
    A device, a pipe or a folder is not replaced.

    Weights that are at `versions.url` alone are in it too. SettingError if it cannot be written,
    VersionsUnavailable if they cannot be read. The model that was trained is not in it.
    """
    file = file.resolve()
    if file.exists() and not file.is_file():
        raise SettingError(f"{file} is no file: a backup is a new file, or takes the place of one")
    versions = versions_of(home, home, versions_settings(home))
    versions.follow()
    try:
        with draft_beside(file) as draft, _replacing(file, draft / "backup") as stream:
            place = draft / "home"
            place.mkdir(mode=0o700)
            store.copy_to(place / STORE)
            for small in SMALL_FILES:
                if (home / small).exists():
                    shutil.copyfile(home / small, place / small)
            header = Header(afterwit=__version__, created=now, hashes=hashes_of(place))
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
                _add_header(tar, header)
                for name in header.hashes:
                    with (place / name).open("rb") as data:
                        _add(tar, name, data)
                newest_first = reversed(versions.all())  # the oldest may be pruned meanwhile
                whole = [_add_version(tar, versions, one, place) for one in newest_first]
    except OSError as error:
        raise SettingError(f"{file} cannot be written: {error.strerror}") from error
    return Copied(versions=len(whole), with_weights=sum(whole), size=file.stat().st_size)


@contextmanager
def _replacing(file: Path, draft: Path) -> Iterator[BinaryIO]:
    """The file `draft`, which takes the place of `file` once it is written whole and flushed to the disk."""
    with os.fdopen(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, file)


def _add_header(tar: tarfile.TarFile, header: Header) -> None:
    data = header.dump()
    info = tarfile.TarInfo(HEADER)
    info.size, info.mtime, info.mode = len(data), int(header.created), 0o600
    tar.addfile(info, io.BytesIO(data))


def _add_version(tar: tarfile.TarFile, versions: Versions, version: Version, place: Path) -> bool:
    """Add a version, and return whether its weights are there."""
    folder = versions.place(version.number)
    if versions.on_disk(version.number) or not (version.files and versions.has_weights(version.number)):
        return _add_folder(tar, folder, version.files)
    brought = place / VERSIONS / folder.name
    try:
        brought.mkdir(parents=True)
        shutil.copyfile(folder / MANIFEST, brought / MANIFEST)
        replace(versions, root=brought.parent).weights(version.number, state=True)
        return _add_folder(tar, brought, version.files)
    finally:
        shutil.rmtree(brought.parent)


def _add_folder(tar: tarfile.TarFile, folder: Path, files: Collection[str]) -> bool:
    """Add a version's manifest and its `files`, and return whether these are there. A state that is kept
    nowhere is left out.

    All are open before the first is read: what is pruned from then on can still be read. If one is gone by
    then, the version's weights are pruned, and its manifest is what stays of it.
    """
    with ExitStack() as stack:
        names = [MANIFEST, *(name for name in files if not is_state(name) or (folder / name).exists())]
        try:
            opened = {name: stack.enter_context((folder / name).open("rb")) for name in names}
        except FileNotFoundError:
            opened = {MANIFEST: stack.enter_context((folder / MANIFEST).open("rb"))}
        for name, data in opened.items():
            _add(tar, f"{VERSIONS}/{folder.name}/{name}", data)
    return len(opened) > 1


def _add(tar: tarfile.TarFile, name: str, data: BinaryIO) -> None:
    """Add one open file. Of two links to one file, the second takes no room."""
    info = tar.gettarinfo(arcname=name, fileobj=data)
    info.mode, info.uid, info.gid, info.uname, info.gname = 0o600, 0, 0, "", ""
    tar.addfile(info, data if info.isreg() else None)
