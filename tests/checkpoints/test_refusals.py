"""A place that does not answer, refuses or is full: the error is a sentence that names what would help."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from afterwit.checkpoints.remote import FolderRemote, VersionsSettings, bucket_error
from afterwit.errors import VersionsRefused, VersionsUnavailable
from tests.checkpoints.places import opened

AT = "s3://bucket/versions"


class Answered(Exception):
    """Like botocore's exception for a server's answer."""

    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(code)
        error = {"Code": code, "Message": message}
        self.response = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Answered(404, "NoSuchBucket"), "there is no bucket bucket for .*: make it, or correct versions.url"),
        (Answered(403, "AccessDenied", "No."), r"refuses \(AccessDenied: No.\): the credentials have to"),
        (Answered(403, "403"), "have to list, read, write and delete"),
        (Answered(400, "InvalidAccessKeyId"), "the credentials have to"),
        (Answered(403, "QuotaExceeded"), r"has no room \(QuotaExceeded\): make some, or lower learner.keep"),
        (Answered(507, "XMinioStorageFull", "Full."), r"has no room \(XMinioStorageFull: Full.\)"),
        (Answered(400, "EntityTooLarge"), r"refuses \(EntityTooLarge\)"),
        (ValueError("Invalid endpoint: minio:9000"), "cannot be used: Invalid endpoint: minio:9000; correct"),
    ],
)
def test_what_somebody_has_to_change_is_refused(error: Exception, words: str) -> None:
    wrapped = OSError("wrapped")
    wrapped.__cause__ = error
    for each in (error, wrapped) if isinstance(error, Answered) else (error,):
        with pytest.raises(VersionsRefused, match=words):
            raise bucket_error(AT, None, each)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Answered(503, "SlowDown", "Later."), r"cannot take or give anything now \(SlowDown: Later.\)"),
        (Answered(500, "InternalError"), r"cannot take or give anything now \(InternalError\)"),
        (ConnectionResetError("reset by peer"), "does not answer: reset by peer"),
        (TimeoutError(), "does not answer: TimeoutError"),
        (FileNotFoundError("bucket/versions/files/ab"), "has no bucket/versions/files/ab any more"),
    ],
)
def test_what_may_pass_by_itself_is_not_refused(error: Exception, words: str) -> None:
    said = bucket_error(AT, "http://minio:9000", error)
    assert not isinstance(said, VersionsRefused)
    with pytest.raises(VersionsUnavailable, match=f"{AT} at http://minio:9000 {words}"):
        raise said


def test_a_folder_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    gone = opened(VersionsSettings(url=str(tmp_path / "mount" / "versions")))
    for what in (
        gone.check,
        gone.numbers,
        gone.files,
        lambda: gone.manifests([1]),
        lambda: gone.commit(1, ""),
    ):
        with pytest.raises(VersionsRefused, match=r"there is no folder .*: mount it or make it, or correct"):
            what()
    assert not (tmp_path / "mount").exists()


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, VersionsRefused, r"has no room \(No space left on device\): make some"),
        (errno.EACCES, VersionsRefused, r"refuses \(Permission denied\): this user has to write there"),
        (errno.EPERM, VersionsRefused, "hard links included"),
        (errno.ESTALE, VersionsUnavailable, "cannot be read or written now"),
    ],
)
def test_a_folder_says_what_is_wrong(tmp_path: Path, number: int, kind: type[Exception], words: str) -> None:
    class Broken(FolderRemote):
        def _folder(self, name: str) -> Path:
            import os

            raise OSError(number, os.strerror(number))

    with pytest.raises(kind, match=words):
        Broken(tmp_path).put("ab12", tmp_path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": "gs://bucket/versions"}, "either s3://bucket/folder or a folder's path"),
        ({"url": "s3:///versions"}, "names no bucket"),
        ({"url": "versions"}, "must be an absolute path"),
        ({"url": "~no-one/versions"}, "must be an absolute path"),
        ({"url": "s3://key:secret@bucket/versions"}, "holds credentials: leave them out"),
        ({"endpoint": "http://minio:9000"}, "but url names no bucket"),
        ({"url": AT, "endpoint": "minio:9000"}, "must begin with http:// or https://"),
        ({"url": AT, "state_every": 0}, "must be at least 1"),
    ],
)
def test_settings_that_name_no_place_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        VersionsSettings(**settings)  # type: ignore[arg-type]
