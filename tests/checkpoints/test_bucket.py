"""Object storage over real HTTP: when it is away, refuses, or loses an answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.checkpoints.manifest import MODEL
from afterwit.checkpoints.remote import Remote, VersionsSettings
from afterwit.checkpoints.versions import Versions
from afterwit.errors import VersionsRefused, VersionsUnavailable, VersionTaken
from tests.checkpoints.places import bucket, opened, put
from tests.checkpoints.test_versions import a_base, fill, grow, version
from tests.processes import PROCESSES

pytestmark = pytest.mark.cluster


@pytest.fixture
def settings(tmp_path: Path) -> VersionsSettings:
    return bucket(tmp_path)


@pytest.fixture
def versions(settings: VersionsSettings, tmp_path: Path) -> Versions:
    return Versions(root=tmp_path / "home", base=a_base(tmp_path), remote=opened(settings))


@contextmanager
def refused(status: int, code: str, *, method: str = "PUT", below: str = "") -> Iterator[None]:
    from tests.fakes.s3 import s3

    def refuses(asked: str, path: str) -> tuple[int, str] | None:
        return (status, code) if asked == method and below in path else None

    with s3().refusing(refuses):
        yield


def test_a_bucket_that_is_not_there_is_named(settings: VersionsSettings) -> None:
    nowhere = opened(replace(settings, url="s3://no-such-bucket/versions"))
    for what in (nowhere.check, nowhere.numbers, nowhere.files, lambda: nowhere.commit(1, "")):
        with pytest.raises(VersionsRefused, match="there is no bucket no-such-bucket"):
            what()


def test_a_server_that_is_away_is_unavailable_and_then_is_not(versions: Versions) -> None:
    from tests.fakes.s3 import s3

    grow(versions, 1)
    with s3().away():
        for what in (versions.follow, versions.share, lambda: grow(versions, 2)):
            with pytest.raises(VersionsUnavailable, match="does not answer: Could not connect"):
                what()
        assert versions.has_weights(1)
        assert versions.weights(1) == versions.place(1)
    assert versions.numbers() == [0, 1]
    assert not versions.place(2).exists()
    grow(versions, 2)


@pytest.mark.parametrize("below", ["files", "manifests"])
@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(403, "AccessDenied", "the credentials have to"), (507, "XMinioStorageFull", "has no room")],
)
def test_what_is_refused_becomes_no_version_on_either_side(
    versions: Versions, tmp_path: Path, below: str, status: int, code: str, words: str
) -> None:
    grow(versions, 1)
    with refused(status, code, below=below), pytest.raises(VersionsRefused, match=words):
        grow(versions, 2)
    assert versions.numbers() == versions.remote.numbers() == [0, 1]
    assert not versions.place(2).exists()
    with versions.writing():
        versions.write(version(2, turns=("another try",)), fill)
    versions.prune(5)
    named = {digest for each in versions.all() for digest in each.files.values()}
    assert set(versions.remote.files()) == named


def test_a_deletion_that_is_refused_is_said(versions: Versions) -> None:
    grow(versions, 2)
    with (
        refused(403, "AccessDenied", method="DELETE"),
        pytest.raises(VersionsRefused, match="delete objects"),
    ):
        versions.remove_weights([2])
    assert versions.holds(2)
    versions.remove_weights([2])
    assert not versions.holds(2)


def test_a_server_that_ignores_conditions_is_refused(settings: VersionsSettings) -> None:
    class Careless:
        """A server that takes every object."""

        def __init__(self, objects: object) -> None:
            self._objects = objects

        def __getattr__(self, name: str) -> object:
            return getattr(self._objects, name)

        def pipe_file(self, path: str, data: bytes, mode: str) -> None:
            self._objects.pipe_file(path, data)

    remote = opened(settings)
    remote.__dict__["_objects"] = Careless(remote._objects)
    with pytest.raises(VersionsRefused, match="lets one object be created twice"):
        remote.check()


def test_a_manifest_whose_answer_was_lost_is_this_machines_own(settings: VersionsSettings) -> None:
    """The server has taken it when the connection breaks; the library's next try meets it."""
    from tests.fakes.s3 import s3

    remote: Remote = opened(settings)
    lost: list[str] = []

    def refuses(method: str, path: str) -> tuple[int, str] | None:
        if method == "PUT" and "manifests" in path and not lost:
            lost.append(path)
            opened(settings).commit(1, "mine")
            return 500, "InternalError"
        return None

    with s3().refusing(refuses):
        remote.commit(1, "mine")
    assert remote.manifests([1]) == {1: "mine"}
    with pytest.raises(VersionTaken):
        remote.commit(1, "another's")


def test_files_larger_than_a_request_go_in_parts(settings: VersionsSettings, tmp_path: Path) -> None:
    large, back = tmp_path / "large", tmp_path / "back"
    large.write_bytes(bytes(range(256)) * (120 << 12))
    remote = opened(settings)
    remote.put("ab12", large)
    remote.get("ab12", back)
    assert remote.files() == {"ab12": 120 << 20}
    assert back.read_bytes() == large.read_bytes()


def test_a_file_whose_writer_dies_between_two_parts_is_not_there(
    settings: VersionsSettings, tmp_path: Path
) -> None:
    from tests.fakes.s3 import s3

    large = tmp_path / "large"
    large.write_bytes(bytes(120 << 20))
    writer = PROCESSES.Process(target=put, args=(settings, "ab12", large))
    parts: list[str] = []

    def kill(method: str, path: str) -> None:
        if method == "PUT" and "ab12" in path:
            parts.append(path)
            if len(parts) == 2 and writer.pid is not None:
                os.kill(writer.pid, signal.SIGKILL)

    with s3().refusing(kill):
        writer.start()
        writer.join()
    assert writer.exitcode == -signal.SIGKILL
    assert opened(settings).files() == {}


def test_there_are_no_credentials_in_a_message(settings: VersionsSettings, versions: Versions) -> None:
    with refused(403, "SignatureDoesNotMatch", method="GET"), pytest.raises(VersionsRefused) as said:
        versions.share()
    assert "secret" not in str(said.value)
    assert "nobody" not in str(said.value)


def test_steady_following_asks_for_one_manifest(versions: Versions) -> None:
    from tests.fakes.s3 import s3

    grow(versions, 2)
    versions.follow()
    before = len(s3().asked)
    versions.follow()
    asked = s3().asked[before:]
    assert len(asked) <= 2
    assert all(MODEL not in each for each in asked)
