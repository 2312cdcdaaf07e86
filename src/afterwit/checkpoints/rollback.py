"""Rollback: a new version with the weights and optimiser state of an old one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from afterwit.adapters import SHARED
from afterwit.checkpoints import manifest
from afterwit.checkpoints.versions import Versions, brought_back, taken_back, turns_in
from afterwit.errors import SettingError, VersionTaken
from afterwit.version import Origin, Version


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
    VersionDamaged if they are damaged, and VersionTaken if there is a version behind `after`; nothing is
    written then.
    """
    versions.follow()
    if versions.adapter is None:
        versions = versions.of(_adapter_of(target, versions))
    with versions.writing():
        version = replace(_plan(versions, target, now, after), forgets=tuple(forgets), without=tuple(without))
        source = versions.weights(target, state=True)
        versions.verify(target)
        return versions.write(
            version, lambda folder: None if source == versions.base else _restore(source, folder)
        )


def _plan(versions: Versions, target: int, now: float, after: int | None) -> Version:
    chain = versions.all()
    if not chain:
        raise SettingError("nothing has been learned here yet: there is no version to return from")
    old = next((version for version in chain if version.number == target), None)
    if old is None:
        known = ", ".join(str(version.number) for version in chain)
        raise SettingError(f"there is no version {target}{_whose(versions)}; there are: {known}")
    newest = chain[-1].number
    if after not in (None, newest):
        raise VersionTaken(f"version {newest} came behind version {after}")
    if target == newest:
        raise SettingError(f"version {target} is the newest already{_whose(versions)}")
    gone = {turn for version in versions.of(None).history() for turn in version.without}
    if gone & turns_in(target, {version.number: version for version in chain}):
        raise SettingError(f"version {target} holds what was forgotten since")
    return Version(
        number=versions.next(),
        parent=newest,
        origin=Origin.ROLLBACK,
        created=now,
        restores=target,
        reverts=taken_back(target, chain),
        returns=brought_back(target, chain),
        probe=old.probe,
        adapter=versions.adapter or SHARED,
    )


def _adapter_of(target: int, versions: Versions) -> str:
    version = versions.get(target) if target else None
    return SHARED if version is None else version.adapter


def _whose(versions: Versions) -> str:
    return "" if versions.adapter in (None, SHARED) else f" of the adapter {versions.adapter}"


def _restore(source: Path, folder: Path) -> None:
    """Every file of a version but its manifest."""
    for path in source.iterdir():
        if path.is_file() and path.name != manifest.NAME:
            link(path.resolve(), folder / path.name)


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy if the disk has no links. A version's files never change."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
