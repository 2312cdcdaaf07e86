"""`--custom-update-weight-post-write-path`: the weights that slime wrote become a version of the home.

slime calls it in every training process, after each step and once before the first. The first process writes.
The manifest's rename is the commit; the rollout's process updates the store.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from afterwit.api.learning import UpdateRefused, Versions, copy_configuration, probe_of
from afterwit.api.running import versions_of
from afterwit.api.turns import Origin, Version
from afterwit_hosts.slime.lesson import Batch, settings_of

_expected: Batch | None = None
"""The batch that this process trains on, shared between slime's hooks."""


def expect(batch: Batch) -> None:
    """The next weights are the ones that this batch made."""
    global _expected
    _expected = batch


def commit(args: Any, version_dir: str, engines: Any) -> None:
    """Write the version; nothing if no batch was trained on, or if this process is not the first."""
    global _expected
    batch, _expected = _expected, None
    if batch is not None and (not dist.is_initialized() or dist.get_rank() == 0):
        write(batch, Path(version_dir))


def write(batch: Batch, written: Path) -> Version:
    """The version with the weights in a folder that slime `written`, whose manifest is on disk on return.

    Raises UpdateRefused if these give log-probs that are not finite, VersionTaken if another version came
    first: its turns are still waiting then.
    """
    settings = settings_of(batch.home)
    versions = versions_of(batch.home, batch.base, settings.versions)
    version = Version(
        number=versions.next(),
        parent=versions.newest(),
        origin=Origin.UPDATE,
        created=time.time(),
        turns=batch.turns,
        probe=probe_of(written, settings.learner.dtype),
        metrics={"samples": float(len(batch.turns))},
    )
    if not version.probe.is_finite:
        raise UpdateRefused(f"the weights in {written} give log-probs that are not finite")

    def fill(folder: Path) -> None:
        for path in written.glob("*.safetensors*"):
            _linked(path, folder / path.name)
        copy_configuration(folder, batch.base)

    with versions.writing():
        return versions.write(version, fill)


def write_base(versions: Versions, dtype: str, *, now: float) -> None:
    """Write version 0 if it is missing."""
    if versions.get(0) is None:
        probe = probe_of(versions.base, dtype)
        version = Version(number=0, parent=None, origin=Origin.BASE, created=now, probe=probe)
        with versions.writing():
            versions.write(version, lambda folder: None)


def _linked(path: Path, place: Path) -> None:
    """The same file at two places, or a copy on another disk: slime deletes its own later."""
    try:
        os.link(path, place)
    except OSError:
        shutil.copyfile(path, place)
