"""Versions that several machines read and write, each with a disk of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.checkpoints import manifest
from afterwit.checkpoints.manifest import MODEL, STATE
from afterwit.checkpoints.remote import FolderRemote
from afterwit.checkpoints.versions import Versions, roll_back
from afterwit.errors import SettingError, VersionDamaged, VersionsRefused, VersionTaken
from afterwit.version import tainted
from tests.checkpoints.places import PLACES, Place, opened
from tests.checkpoints.test_versions import a_base, damage, fill, grow, version

Machine = Callable[..., Versions]


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    """A machine by its name; all share one place."""
    place: Place = request.param
    settings, base = place(tmp_path), a_base(tmp_path)

    def made(name: str, *, state_every: int = 1) -> Versions:
        remote = opened(settings)
        return Versions(root=tmp_path / name, base=base, remote=remote, state_every=state_every)

    return made


def with_weights(versions: Versions) -> list[int]:
    return [number for number in versions.numbers() if number and versions.has_weights(number)]


def on_disk(versions: Versions) -> list[int]:
    return sorted(int(path.parent.name) for path in versions.root.glob(f"*/{MODEL}"))


def test_a_machine_with_an_empty_disk_has_what_another_wrote(machine: Machine) -> None:
    learner, other = machine("learner"), machine("other")
    grow(learner, 3)
    other.follow()
    assert other.all() == learner.all()
    assert on_disk(other) == []
    assert (other.weights(3) / MODEL).read_text() == "weights of 000003"
    assert sorted(path.name for path in other.place(3).iterdir()) == [
        "config.json", manifest.NAME, MODEL, "qwen.tiktoken",
    ]  # fmt: skip
    other.verify(3)
    assert (other.weights(3, state=True) / STATE).read_text() == "state of 000003"
    assert on_disk(other) == [3]
    assert other.weights(0) == other.base


def test_what_came_later_is_followed(machine: Machine) -> None:
    learner, other = machine("learner"), machine("other")
    grow(learner, 1)
    other.follow()
    other.follow()
    grow(learner, 3)
    assert other.newest() == 1
    other.follow()
    assert other.newest() == 3


def test_what_is_written_while_another_machine_is_faster_is_refused(machine: Machine) -> None:
    one, two = machine("one"), machine("two")
    grow(one, 1)
    two.follow()
    with one.writing(), two.writing():
        one.write(version(2, turns=("one's",)), fill)
        with pytest.raises(VersionTaken, match="has another version 2"):
            two.write(version(2, turns=("two's",)), fill)
    assert not two.place(2).exists()
    two.follow()
    assert two.all() == one.all()
    grow(two, 3)
    one.follow()
    assert one.newest() == 3


def test_a_machine_that_follows_leaves_alone_what_its_own_learner_writes(machine: Machine) -> None:
    learner, publisher, other = machine("home"), machine("home"), machine("other")
    grow(learner, 1)
    other.follow()

    def write(folder: Path) -> None:
        fill(folder)
        with other.writing():
            other.write(version(2, turns=("other's",)), fill)
        publisher.follow()
        assert (folder / MODEL).exists()

    with learner.writing(), pytest.raises(VersionTaken):
        learner.write(version(2), write)
    publisher.follow()
    assert publisher.get(2) == other.get(2)


def test_optimiser_states_go_there_every_so_many_versions(machine: Machine) -> None:
    learner, other = machine("learner", state_every=2), machine("other", state_every=2)
    grow(learner, 4)
    other.follow()
    assert [other.resumes(number) for number in range(5)] == [True, False, True, False, True]
    assert [learner.resumes(number) for number in range(5)] == [True] * 5
    assert not (other.weights(3, state=True) / STATE).exists()
    other.verify(3)
    made = roll_back(other, 2, now=9.0)
    assert other.resumes(made.number)
    learner.follow()
    assert (learner.weights(5, state=True) / STATE).read_text() == "state of 000002"


def test_the_ladder_is_there_and_the_newest_are_here(machine: Machine) -> None:
    learner, other = machine("learner"), machine("other")
    grow(learner, 8)
    learner.prune(2, but=[5])
    assert with_weights(learner) == [4, 5, 6, 7, 8]
    assert on_disk(learner) == [5, 7, 8]
    other.follow()
    assert with_weights(other) == [4, 5, 6, 7, 8]
    for number in (4, 6, 7):
        other.weights(number)
    other.trim(2, but=[6])
    assert on_disk(other) == [6, 7]
    with pytest.raises(
        SettingError, match=r"version 1 are not in .* or at .*; those of 0, 4, 5, 6, 7, 8 are"
    ):
        other.weights(1)


def test_a_machine_that_shares_nothing_trims_nothing(tmp_path: Path) -> None:
    alone = Versions(root=tmp_path / "versions", base=a_base(tmp_path))
    grow(alone, 4)
    alone.follow()
    alone.share()
    alone.trim(1)
    assert on_disk(alone) == [1, 2, 3, 4]


def test_a_rollback_copies_no_file_and_outlives_what_it_restores(machine: Machine) -> None:
    learner, other = machine("learner"), machine("other")
    grow(learner, 4)
    files = learner.remote.files()
    other.follow()
    made = roll_back(other, 1, now=9.0)
    assert made.reverts == (2, 3, 4)
    assert learner.remote.files() == files
    learner.follow()
    learner.prune(1)
    assert learner.has_weights(5)
    third = machine("third")
    third.follow()
    assert (third.weights(5, state=True) / MODEL).read_text() == "weights of 000001"
    assert (third.place(5) / STATE).read_text() == "state of 000001"


def test_what_is_forgotten_is_gone_from_there_too_with_what_nobody_names(
    machine: Machine, tmp_path: Path
) -> None:
    learner = machine("learner")
    grow(learner, 3)
    left = tmp_path / "left by an update that was killed"
    left.write_text("weights")
    learner.remote.put("ab" * 32, left)
    learner.trim(1)
    gone = tainted(learner.all(), learner.holds, ["turn2"])
    assert gone == (2, 3)
    learner.remove_weights(gone)
    named = {digest for each in learner.all() if each.number in (0, 1) for digest in each.files.values()}
    assert set(learner.remote.files()) == named
    assert with_weights(learner) == [1]
    assert tainted(learner.all(), learner.holds, ["turn2"]) == ()


@pytest.mark.parametrize("left", ["weights", "state"])
def test_a_removal_that_was_killed_is_found_again(machine: Machine, left: str) -> None:
    learner = machine("learner")
    grow(learner, 2)
    files = learner.all()[2].files
    learner.trim(0)
    learner.remote.remove(
        [digest for name, digest in files.items() if (name == MODEL) != (left == "weights")]
    )
    again = machine("learner")
    assert again.holds(2)
    again.remove_weights([2])
    assert not again.holds(2)


def test_a_home_that_had_versions_before_gives_them(machine: Machine, tmp_path: Path) -> None:
    alone = Versions(root=tmp_path / "home", base=tmp_path / "base")
    grow(alone, 5)
    alone.prune(2)
    home, other = machine("home"), machine("other")
    home.follow()
    assert home.remote.numbers() == []
    home.share()
    home.share()
    other.follow()
    assert other.all() == alone.all()
    assert with_weights(other) == with_weights(alone) == [2, 4, 5]
    grow(home, 6)


def test_what_is_missing_there_is_given_again(machine: Machine) -> None:
    learner = machine("learner")
    grow(learner, 2)
    files = learner.remote.files()
    learner.remote.remove(files)
    learner.share()
    assert learner.remote.files() == files


def test_another_homes_versions_are_refused(machine: Machine, tmp_path: Path) -> None:
    grow(machine("one"), 3)
    other = Versions(root=tmp_path / "two", base=tmp_path / "base")
    with other.writing():
        other.write(replace(version(0), created=77.0), lambda folder: None)
    two = machine("two")
    for what in (two.follow, two.share):
        with pytest.raises(
            VersionsRefused, match=r"version 0 at .* is not the one in .*: another home writes"
        ):
            what()
    assert two.newest() == 0


@pytest.mark.parametrize("name", ["../../../there", "{tmp}/there", "..", "", "a/../../../../there", "x\x00y"])
def test_a_manifest_from_there_writes_no_file_outside_of_its_version(
    machine: Machine, tmp_path: Path, name: str
) -> None:
    attacker, other = machine("attacker"), machine("other")
    grow(attacker, 1)
    loot = tmp_path / "loot"
    loot.write_text("written by a manifest")
    attacker.remote.put("ab" * 32, loot)
    data = json.loads(manifest.dump(version(2)))
    data["files"] = {name.format(tmp=tmp_path): "ab" * 32}
    attacker.remote.commit(2, json.dumps(data))
    with pytest.raises(
        VersionsRefused, match=r"manifest of version 2 at .* is refused .* cannot be the name of a version's"
    ):
        other.follow()
    with pytest.raises(SettingError, match="version 2 are not in"):
        other.weights(2)
    assert not list(tmp_path.rglob("there"))
    assert other.get(2) is None
    attacker.remote.remove(["ab" * 32])


def test_what_is_no_manifest_at_the_place_is_nobodys_version(machine: Machine, tmp_path: Path) -> None:
    learner, other = machine("learner"), machine("other")
    grow(learner, 1)
    if isinstance(learner.remote, FolderRemote):
        for name in (".DS_Store", "000001.json~", "-00001.json", "notes.txt"):
            (tmp_path / "shared" / "manifests" / name).write_text("{}")
    other.follow()
    assert other.all() == learner.all()


def test_a_damaged_file_is_brought_again_once_it_is_deleted(machine: Machine) -> None:
    learner = machine("learner")
    grow(learner, 1)
    damage(learner.place(1) / MODEL)
    with pytest.raises(
        VersionDamaged, match=f"{MODEL} is damaged: .*; delete that file, and it is fetched again"
    ):
        learner.verify(1)
    (learner.place(1) / MODEL).unlink()
    learner.weights(1)
    learner.verify(1)


def test_a_file_that_is_damaged_there_never_gets_its_name_here(machine: Machine, tmp_path: Path) -> None:
    learner, other = machine("learner"), machine("other")
    grow(learner, 1)
    wrong = tmp_path / "wrong"
    wrong.write_text("weights of 000002")
    learner.remote.put(learner.all()[1].files[MODEL], wrong)
    other.follow()
    with pytest.raises(VersionDamaged, match=rf"000001/{MODEL} is damaged at .*: its hash differs"):
        other.weights(1)
    assert on_disk(other) == []


def test_what_a_killed_download_left_is_no_file_of_a_version(machine: Machine) -> None:
    learner, other = machine("learner"), machine("other")
    grow(learner, 1)
    other.follow()
    (other.root / ".brought").mkdir()
    (other.root / ".brought" / MODEL).write_text("weig")
    other.weights(1)
    other.verify(1)
    assert not (other.root / ".brought").exists()
