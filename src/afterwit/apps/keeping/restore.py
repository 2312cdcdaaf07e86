"""A home from a backup: whole or not at all, and never over another one."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from afterwit.apps.build import store_at, versions_of
from afterwit.apps.home import STORE, VERSIONS, store_url
from afterwit.apps.keeping.archive import HEADER, Header, belongs, links, read_header
from afterwit.apps.keeping.drafts import draft_beside
from afterwit.apps.running.runtime import STAGES
from afterwit.checkpoints import held
from afterwit.checkpoints.files import is_state
from afterwit.checkpoints.hashes import first_damaged
from afterwit.checkpoints.manifest import NAME as MANIFEST
from afterwit.checkpoints.rollback import link
from afterwit.core.errors import AlreadyRunning, SettingError


def restore(file: Path, home: Path) -> Header:
    """Make the folder `home` from the backup `file`, and return what its header says.

    Everything is unpacked and checked beside the home's place, then renamed into it. Raises AlreadyRunning
    if something runs over `home`, SettingError if anything is in it, if `file` is no backup or damaged;
    VersionDamaged and StoreError if what is in it is. Nothing is left behind then.
    """
    refuse_running(home, "a running home is not replaced")
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise SettingError(f"{home} is not empty: move it away first, or name another --home")
    try:
        home.absolute().parent.mkdir(parents=True, exist_ok=True)
        with draft_beside(home) as draft:
            header = _unpack(file, draft)
            _check(file, draft, header)
            draft.rename(home)
    except (tarfile.TarError, EOFError) as error:
        raise SettingError(f"{file} is no backup of Afterwit, or damaged: {error}") from error
    except OSError as error:
        raise SettingError(f"{file} cannot be restored to {home}: {error.strerror}") from error
    return header


def refuse_running(home: Path, reason: str) -> None:
    """Raises AlreadyRunning if a stage or a learner runs over the home."""
    for lock in (*(home / f".{stage}.lock" for stage in STAGES), home / VERSIONS / ".learner.lock"):
        if held(lock):
            holder = lock.read_text(errors="replace") or "unknown"
            raise AlreadyRunning(f"process {holder} runs over {home}: {reason}; name another --home")


def _unpack(file: Path, draft: Path) -> Header:
    """Write the entries that belong into a home; anything else is refused. What is written takes no more room
    than the archive does: nothing in it is compressed, sparse, or there twice."""
    with tarfile.open(file, "r:") as tar:
        entries = iter(tar)
        first = next(entries, None)
        data = (
            None if first is None or first.name != HEADER or not _is_plain(first) else tar.extractfile(first)
        )
        if data is None:
            raise tarfile.ReadError(f"it does not begin with {HEADER}")
        header = read_header(data.read())
        if STORE not in header.hashes:
            raise tarfile.ReadError(f"it has no {STORE}")
        for entry in entries:
            if not belongs(entry.name):
                raise tarfile.ReadError(f"{entry.name} has no place in a home")
            _unpack_one(tar, entry, draft)
    return header


def _is_plain(entry: tarfile.TarInfo) -> bool:
    return entry.isreg() and not entry.issparse()


def _unpack_one(tar: tarfile.TarFile, entry: tarfile.TarInfo, draft: Path) -> None:
    target = draft / entry.name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if entry.islnk() and links(entry.name, entry.linkname) and (draft / entry.linkname).is_file():
        link(draft / entry.linkname, target)
        return
    source = tar.extractfile(entry) if _is_plain(entry) else None
    if source is None:
        raise tarfile.ReadError(f"{entry.name} is neither a file nor a link to one before it")
    with source, target.open("xb") as copy:
        shutil.copyfileobj(source, copy)
    target.chmod(0o600)


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
