"""The contract of every place at which machines share versions."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from afterwit.checkpoints.remote import Remote
from afterwit.errors import DiskFull, VersionsUnavailable, VersionTaken
from tests.checkpoints.places import PLACES, Place, opened
from tests.disk import room_for


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    place: Place = request.param
    return opened(place(tmp_path))


def test_it_is_empty_at_first_and_can_be_written(remote: Remote) -> None:
    remote.check()
    assert remote.numbers() == []
    assert remote.files() == {}
    assert remote.manifests([0, 1]) == {}
    assert remote.manifests([]) == {}


def test_manifests_come_back_as_they_were(remote: Remote) -> None:
    texts = {number: f'{{"number": {number}, "words": "grüß Gott"}}' for number in (0, 1, 2, 11)}
    for number, text in texts.items():
        remote.commit(number, text)
    assert remote.numbers() == [0, 1, 2, 11]
    assert remote.manifests([0, 1, 2, 3, 11]) == texts


def test_a_full_disk_here_is_not_blamed_on_the_place(remote: Remote, tmp_path: Path) -> None:
    (source := tmp_path / "source").write_bytes(b"weights" * 1000)
    (here := tmp_path / "here").mkdir()
    remote.put("ab12", source)
    with room_for(1000), pytest.raises(DiskFull, match=f"^{here} cannot be written: File too large"):
        remote.get("ab12", here / "copy")
    remote.get("ab12", here / "copy")
    assert (here / "copy").read_bytes() == source.read_bytes()


def test_a_number_is_given_once(remote: Remote) -> None:
    remote.commit(1, "mine")
    with pytest.raises(VersionTaken, match="has another version 1"):
        remote.commit(1, "yours")
    assert remote.manifests([1]) == {1: "mine"}


def test_a_manifest_that_is_there_already_is_no_other(remote: Remote) -> None:
    """An answer that was lost: the next try finds what the first one wrote."""
    remote.commit(1, "mine")
    remote.commit(1, "mine")
    assert remote.manifests([1]) == {1: "mine"}


def test_of_many_who_want_one_number_one_gets_it(remote: Remote) -> None:
    got, start = [], threading.Barrier(4)

    def want(name: str) -> None:
        start.wait()
        try:
            remote.commit(1, name)
        except VersionTaken:
            return
        got.append(name)

    wanting = [threading.Thread(target=want, args=(f"writer {each}",)) for each in range(4)]
    for each in wanting:
        each.start()
    for each in wanting:
        each.join()
    assert remote.manifests([1]) == {1: got[0]}
    assert len(got) == 1


def test_files_go_and_come_by_their_digests(remote: Remote, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 1000)
    remote.put("ab12", source)
    source.write_bytes(b"")
    remote.put("cd34", source)
    assert remote.files() == {"ab12": 256_000, "cd34": 0}
    remote.get("ab12", target)
    assert target.read_bytes() == bytes(range(256)) * 1000
    remote.get("cd34", target)
    assert target.read_bytes() == b""
    remote.remove(["ab12", "never there"])
    assert remote.files() == {"cd34": 0}


def test_a_file_that_is_gone_is_missed(remote: Remote, tmp_path: Path) -> None:
    with pytest.raises(VersionsUnavailable):
        remote.get("ab12", tmp_path / "target")


def test_it_can_be_handed_to_another_process(remote: Remote) -> None:
    remote.commit(3, "three")
    assert pickle.loads(pickle.dumps(remote)).numbers() == [3]
