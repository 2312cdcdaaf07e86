"""A backup of a home in one file, taken while its stages run; and the copy of a store into another one.

The store is copied first, then the versions: a version that the copied store does not know is committed from
its manifest at the next start, as after a crash. In the other order the store would name missing versions.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Collection
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

from afterwit import __version__
from afterwit.build import store_at, versions_of
from afterwit.checkpoints.manifest import NAME as MANIFEST
from afterwit.checkpoints.manifest import first_damaged, hashes_of, held, is_state, names_file, parsed
from afterwit.checkpoints.versions import Versions, link
from afterwit.config import section_of_home
from afterwit.errors import AlreadyRunning, SettingError
from afterwit.gateway.backlog import FILE as UNRECORDED
from afterwit.home.drafts import draft_beside
from afterwit.home.home import (
    CONFIG,
    MODEL,
    STAGES,
    STORE,
    VERSIONS,
    learner_lock,
    stage_lock,
    store_url,
    writing,
)
from afterwit.judging.ability import Progress, silent
from afterwit.store import Store, store_exists
from afterwit.version import Version

HEADER, FORMAT = "afterwit-backup.json", 1
SMALL_FILES = (MODEL, CONFIG, UNRECORDED)
VERSION_FILE = re.compile(rf"{VERSIONS}/[0-9]{{6}}/(.*)", re.DOTALL)
"""The name of a version's file in an archive."""
HOME = "home"
"""Refers to the file in the home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first entry of an archive. `hashes`: SHA-256 by file name."""

    format: int = FORMAT
    afterwit: str
    created: float
    hashes: dict[str, str]


def back_up(
    home: Path,
    store: Store,
    file: Path,
    *,
    now: float,
    progress: Progress = silent,
) -> list[bool]:
    """Write the home into `file`, readable by its owner only. A complete backup replaces an older file; a
    device, a pipe or a folder is not replaced. Returns for each version whether its weights are in it.

    `progress` gets the step, n and m. Includes weights that are only at `versions.url`, but not the model.
    SettingError if the file cannot be written, VersionsUnavailable if those weights cannot be read.
    """
    file = file.resolve()
    if file.exists() and not file.is_file():
        raise SettingError(f"{file} is not a file: a backup is a new file, or replaces one")
    versions = versions_of(home, home, section_of_home(home, "versions").versions)
    versions.follow()
    with writing(file), draft_beside(file) as draft:
        place = draft / "home"
        place.mkdir(mode=0o700)
        for small in SMALL_FILES:  # before the store, in which the waiting turns may be a moment later
            with suppress(FileNotFoundError):
                shutil.copyfile(home / small, place / small)
        store.copy_to(place / STORE)
        handle = os.open(draft / "backup", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w+b") as stream:
            whole = _write(stream, versions, place, now, progress)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft / "backup", file)
    return whole


def _write(
    stream: BinaryIO,
    versions: Versions,
    place: Path,
    now: float,
    progress: Progress,
) -> list[bool]:
    """Archive the files of `place`, then every version; returns for each whether its weights are in it."""
    header = Header(afterwit=__version__, created=now, hashes=hashes_of(place))
    data = json.dumps(asdict(header), indent=1).encode()
    info = tarfile.TarInfo(HEADER)
    info.size, info.mtime, info.mode = len(data), int(now), 0o600
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(data))
        for name in header.hashes:
            with (place / name).open("rb") as file:
                _add(tar, name, file)
        whole, all_ = list[bool](), versions.all()
        for one in reversed(all_):  # the oldest may be pruned meanwhile
            progress("copying versions", len(whole), len(all_))
            whole.append(_add_version(tar, versions, one, place))
        return whole


def _add_version(tar: tarfile.TarFile, versions: Versions, version: Version, place: Path) -> bool:
    """Add a version; returns whether its weights are in the archive."""
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
    """Add a version's manifest and its `files`; returns whether these still exist. An optimiser state that
    was not kept is left out.

    All files are opened before the first is read, so that they can be pruned meanwhile. If one is missing,
    the version's weights have been pruned, and only its manifest is added.
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
    """Add one open file. A second link to the same file takes no space."""
    info = tar.gettarinfo(arcname=name, fileobj=data)
    info.mode, info.uid, info.gid, info.uname, info.gname = 0o600, 0, 0, "", ""
    tar.addfile(info, data if info.isreg() else None)


def restore_home(file: Path, home: Path) -> Header:
    """Make the folder `home` from the backup `file`; returns its header.

    Everything is unpacked and checked next to the home's place, then renamed into it. Raises AlreadyRunning
    if a process runs over `home`, SettingError if `home` is not empty or `file` is not an intact backup,
    VersionDamaged and StoreError if its contents are damaged. Nothing remains of a failed attempt.
    """
    refuse_running(home, "a running home is not replaced; name another --home")
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise SettingError(f"{home} is not empty: move it away first, or name another --home")
    try:
        home.absolute().parent.mkdir(parents=True, exist_ok=True)
        with draft_beside(home) as draft:
            header = _unpack(file, draft)
            _check(file, draft, header)
            draft.rename(home)
    except (tarfile.TarError, EOFError) as error:
        raise SettingError(f"{file} is not a backup of Afterwit, or damaged: {error}") from error
    except OSError as error:
        raise SettingError(f"{file} cannot be restored to {home}: {error.strerror}") from error
    return header


def refuse_running(home: Path, reason: str) -> None:
    """AlreadyRunning, with the reason and a remedy, if a stage or a learner runs over the home."""
    for lock in (*(stage_lock(home, stage) for stage in STAGES), learner_lock(home)):
        if held(lock):
            holder = lock.read_text(errors="replace") or "unknown"
            raise AlreadyRunning(f"process {holder} runs over {home}: {reason}")


def _unpack(file: Path, draft: Path) -> Header:
    """Write the entries that belong in a home; refuse any other. The files take no more space than the
    archive: none is compressed, sparse, or repeated."""
    with tarfile.open(file, "r:") as tar:
        entries = iter(tar)
        first = next(entries, None)
        data = (
            tar.extractfile(first) if first is not None and first.name == HEADER and _plain(first) else None
        )
        if data is None:
            raise tarfile.ReadError(f"it does not begin with {HEADER}")
        header = _header(data.read())
        for entry in entries:
            name, link_to = entry.name, entry.linkname
            if not _belongs(name):
                raise tarfile.ReadError(f"{name} has no place in a home")
            target = draft / name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            of_versions = all(VERSION_FILE.fullmatch(each) and _belongs(each) for each in (name, link_to))
            if entry.islnk() and of_versions and (draft / link_to).is_file():
                link(draft / link_to, target)
                continue
            source = tar.extractfile(entry) if _plain(entry) else None
            if source is None:
                raise tarfile.ReadError(f"{name} is neither a file nor a link to one before it")
            with source, target.open("xb") as copy:
                shutil.copyfileobj(source, copy)
            target.chmod(0o600)
    return header


def _plain(entry: tarfile.TarInfo) -> bool:
    return entry.isreg() and not entry.issparse()


def _header(data: bytes) -> Header:
    """SettingError if this Afterwit does not know the format."""
    try:
        header = parsed(Header, data)
    except ValueError as error:
        raise SettingError(f"the backup's {HEADER} cannot be read") from error
    if header.format != FORMAT:
        raise SettingError(
            f"the backup has format {header.format}; this Afterwit supports {FORMAT}: install Afterwit "
            f"{header.afterwit}, which wrote it"
        )
    if foreign := header.hashes.keys() - {STORE, *SMALL_FILES}:
        raise SettingError(f"the backup's {HEADER} names {min(foreign)!r}, which is not a file of a home")
    if STORE not in header.hashes:
        raise tarfile.ReadError(f"it has no {STORE}")
    return header


def _belongs(name: str) -> bool:
    """Whether an archive may hold an entry of this name, so that nothing is written outside the home."""
    if (of_version := VERSION_FILE.fullmatch(name)) is None:
        return name in (STORE, *SMALL_FILES)
    return of_version[1] == MANIFEST or names_file(of_version[1])


def _check(file: Path, draft: Path, header: Header) -> None:
    """Compare every file with its hash, refuse those that have none, and open the store."""
    versions = versions_of(draft, draft)
    places = [(draft, header.hashes)]
    for place in (draft / VERSIONS).glob("*"):
        if (version := versions.get(int(place.name))) is None:
            raise SettingError(f"{file} is damaged: version {int(place.name)} has no {MANIFEST}")
        whole, hashes = versions.on_disk(version.number), version.files.items()
        there = {
            name: hash for name, hash in hashes if (whole and not is_state(name)) or (place / name).exists()
        }
        places.append((place, there))
    for folder, expected in places:
        here = {path.name for path in folder.iterdir() if path.is_file()}
        if unknown := here - expected.keys() - {MANIFEST}:
            raise SettingError(f"{file} is damaged: {folder / min(unknown)} has no hash in it")
        if (problem := first_damaged(folder, expected)) is not None:
            raise SettingError(f"{file} is damaged: {problem}")
    store_at(store_url(draft)).close()


def copy_store(home: Path, configured: str | None, *, source: str | None, target: str) -> int:
    """Copy the store at `source` (None: the home's own, at `configured` or in it) to `target`.

    Both are URLs, or `home`. Returns the number of turns. Raises AlreadyRunning if a process runs over the
    home, SettingError if there is nothing to copy, StoreError if the target is not empty.
    """
    here = store_url(home, configured if source is None else None if source == HOME else source)
    there = store_url(home, None if target == HOME else target)
    if here == there:
        raise SettingError("source and target are the same store")
    if not store_exists(here):
        raise SettingError(f"there is no store to copy at {'store.url' if here == configured else here}")
    refuse_running(home, "its newest turns would be missing from the copy; stop it first")
    with closing(store_at(here)) as old, closing(store_at(there)) as new:
        return old.copy_into(new)
