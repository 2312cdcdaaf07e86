"""The place that the settings name."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from afterwit.checkpoints.remote.folder import FolderRemote
from afterwit.checkpoints.remote.port import Remote
from afterwit.checkpoints.remote.settings import S3, VersionsSettings


def remote_of(settings: VersionsSettings) -> Remote | None:
    """None without a URL. Nothing is asked of it yet."""
    if settings.url is None:
        return None
    if urlsplit(settings.url).scheme == S3:
        from afterwit.checkpoints.remote.bucket import BucketRemote

        return BucketRemote(settings.url, endpoint=settings.endpoint)
    return FolderRemote(Path(settings.url).expanduser())
