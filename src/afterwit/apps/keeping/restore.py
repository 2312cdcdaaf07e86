"""A home from a backup: whole or not at all, and never over another one."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from afterwit.apps.build import store_at, versions_of
from afterwit.apps.home import STORE, VERSIONS, store_url
from afterwit.apps.keeping.archive import HEADER, Header, belongs, read_header
from afterwit.apps.keeping.drafts import draft_beside
from afterwit.apps.running.runtime import STAGES
from afterwit.checkpoints import Versions, held
from afterwit.checkpoints.files import is_state
from afterwit.checkpoints.hashes import first_damaged
from afterwit.core.errors import AlreadyRunning, SettingError
from afterwit.core.version import Version


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
    """Write the entries that belong into a home; anything else is refused."""
    with tarfile.open(file) as tar:
        entries = iter(tar)
        first = next(entries, None)
        data = None if first is None or first.name != HEADER else tar.extractfile(first)
        if data is None:
            raise tarfile.ReadError(f"it does not begin with {HEADER}")
        header = read_header(data.read())
        if STORE not in header.hashes:
            raise tarfile.ReadError(f"it has no {STORE}")
        for entry in entries:
            source = tar.extractfile(entry) if belongs(entry.name) else None
            if source is None:
                raise tarfile.ReadError(f"{entry.name} has no place in a home")
            target = draft / entry.name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with source, target.open("xb") as copy:
                shutil.copyfileobj(source, copy)
            target.chmod(0o600)
    return header


def _check(file: Path, draft: Path, header: Header) -> None:
    """Compare every file with its hash, and open the store."""
    versions = versions_of(draft, draft)
    whole = [version for version in versions.all() if versions.on_disk(version.number)]
    places = [
        (draft, header.hashes),
        *((versions.place(one.number), _backed_up(versions, one)) for one in whole),
    ]
    for folder, hashes in places:
        if (problem := first_damaged(folder, hashes)) is not None:
            raise SettingError(f"{file} is damaged: {problem}")
    store_at(store_url(draft)).close()


def _backed_up(versions: Versions, version: Version) -> dict[str, str]:
    """Its files with their hashes; without the state, if it was kept nowhere."""
    place = versions.place(version.number)
    return {
        name: hash for name, hash in version.files.items() if not is_state(name) or (place / name).exists()
    }
