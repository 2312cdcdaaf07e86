"""A version's files between this disk and the place that machines share."""

from __future__ import annotations

import shutil
from pathlib import Path

from afterwit.checkpoints.files import is_state, is_weights
from afterwit.checkpoints.flushing import sync
from afterwit.checkpoints.hashes import matches
from afterwit.checkpoints.lock import exclusive
from afterwit.checkpoints.remote import Remote
from afterwit.core.errors import VersionDamaged
from afterwit.core.version import Version


def send(version: Version, folder: Path, remote: Remote, there: set[str], *, state: bool) -> None:
    """Copy the version's files that are here to the remote, which has `there`; the optimiser's only with
    `state`. What was copied is added to `there`."""
    for name, digest in version.files.items():
        if digest not in there and (state or not is_state(name)) and (folder / name).exists():
            remote.put(digest, folder / name)
            there.add(digest)


def bring(version: Version, folder: Path, remote: Remote, *, state: bool) -> None:
    """Copy the version's files here that are there and not here; the optimiser's only with `state`.

    Each is compared with its digest before it gets its name. One process of a machine does it at a
    time. Raises VersionDamaged for a file that is not as it was written; no such file gets its name.
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
    if not matches(draft, digest):
        raise VersionDamaged(f"{name} is damaged at {remote.place} (files/{digest}): its hash is another")
    sync(draft)
