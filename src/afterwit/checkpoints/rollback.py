"""Rollback: a new version with the weights and optimiser state of an old one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from afterwit.checkpoints import manifest
from afterwit.checkpoints.versions import Versions
from afterwit.errors import SettingError, VersionTaken
from afterwit.turn import SHARED
from afterwit.version import Origin, Version, brought_back, taken_back, turns_in


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
        raise SettingError(
            f"there is no version {target}{whose}; there are: {', '.join(map(str, by_number))}"
        )
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
