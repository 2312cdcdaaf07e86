"""The places that versions are shared at: one entry of a table for each kind. Those of a server are for
`make test-cluster`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from afterwit.checkpoints.remote import Remote, VersionsSettings, remote_of


def folder(tmp_path: Path) -> VersionsSettings:
    (tmp_path / "shared").mkdir()
    return VersionsSettings(url=str(tmp_path / "shared"))


def bucket(tmp_path: Path) -> VersionsSettings:
    from tests.fakes.s3 import s3

    return VersionsSettings(url=s3().place(), endpoint=s3().endpoint)


PLACES: list[object] = [folder, pytest.param(bucket, marks=pytest.mark.cluster)]
Place = Callable[[Path], VersionsSettings]


def opened(settings: VersionsSettings) -> Remote:
    found = remote_of(settings)
    assert found is not None
    return found


def put(settings: VersionsSettings, digest: str, source: Path) -> None:
    """In a process of its own, to be killed."""
    opened(settings).put(digest, source)
