from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from afterwit.checkpoints import manifest
from afterwit.checkpoints.manifest import MODEL, STATE
from afterwit.checkpoints.versions import Versions, is_rung, roll_back
from afterwit.errors import AlreadyRunning, DiskFull, SettingError, VersionDamaged, VersionTaken
from afterwit.version import Effect, Origin, Probe, Recipe, Version, learned, taken_back
from tests.checkpoints.places import folder, opened
from tests.disk import room_for

PROBE = Probe(ids=(1, 2, 3), logprobs=(-0.5, -1.25))


def version(number: int, **more: object) -> Version:
    fields = {"parent": number - 1 if number else None, "origin": Origin.UPDATE, "turns": (f"turn{number}",)}
    if number == 0:
        fields |= {"origin": Origin.BASE, "turns": ()}
    return Version(number=number, created=float(number), probe=PROBE, **(fields | more))  # type: ignore[arg-type]


def fill(folder: Path) -> None:
    (folder / MODEL).write_text(f"weights of {folder.name}")
    (folder / STATE).write_text(f"state of {folder.name}")
    (folder / "config.json").write_text("{}")
    (folder / "qwen.tiktoken").write_text("a tokenizer")


@pytest.fixture(params=["alone", "shared"])
def versions(request: pytest.FixtureRequest, tmp_path: Path) -> Versions:
    """Of one machine; of one among several."""
    base = a_base(tmp_path)
    if request.param == "alone":
        return Versions(root=tmp_path / "versions", base=base)
    return Versions(root=tmp_path / "versions", base=base, remote=opened(folder(tmp_path)))


@pytest.fixture
def alone(tmp_path: Path) -> Versions:
    """Of one machine: what is damaged on its disk is nowhere else."""
    return Versions(root=tmp_path / "versions", base=a_base(tmp_path))


def a_base(tmp_path: Path) -> Path:
    base = tmp_path / "base"
    base.mkdir()
    (base / MODEL).write_text("base weights")
    (base / "config.json").write_text("{}")
    return base


def grow(versions: Versions, up_to: int) -> None:
    for number in range(versions.newest() + 1 if versions.numbers() else 0, up_to + 1):
        with versions.writing():
            versions.write(version(number), fill if number else lambda folder: None)


def test_a_manifest_reads_back_as_it_was() -> None:
    written = version(
        7,
        files={MODEL: "0a" * 32},
        replayed=("a", "b"),
        restores=3,
        reverts=(4, 5),
        metrics={"loss": 0.1 + 0.2},
        recipe=Recipe(
            learner={"lr": 0.1},
            objective={"beta": 0.0},
            placement="last_user",
            digests={"a": "0a"},
            groups={"a": (1.0, -1.0)},
        ),
        begins=2,
        replays=(3, 4),
        forgets=("talk",),
        without=("a",),
        effects=(Effect(turn="turn7", before=-1.0, after=-2.0, advantages=(0.5, -1.25)),),
    )
    assert manifest.parse(manifest.dump(written), 7) == written


def test_the_history_is_all_versions_without_what_was_measured_and_follows_what_is_new(
    versions: Versions,
) -> None:
    grow(versions, 1)
    measured = version(2, metrics={"loss": 1.0}, effects=(Effect(turn="turn2", before=-1.0, after=-0.5),))
    with versions.writing():
        versions.write(measured, fill)
    plain = [replace(each, metrics={}, effects=()) for each in versions.all()]
    assert versions.history() == plain != versions.all()
    grow(versions, 3)
    assert versions.history() == [replace(each, metrics={}, effects=()) for each in versions.all()]


def test_a_damaged_manifest_is_said_of_the_history_too(alone: Versions) -> None:
    grow(alone, 2)
    assert len(alone.history()) == 3
    (alone.place(2) / manifest.NAME).write_text("{")
    with pytest.raises(VersionDamaged, match="cannot be read"):
        alone.history()


def test_a_folder_is_a_version_only_once_its_manifest_is_there(versions: Versions) -> None:
    grow(versions, 1)
    seen = []

    def look(folder: Path) -> None:
        fill(folder)
        seen.append((versions.newest(), versions.get(2), versions.has_weights(2)))

    with versions.writing():
        written = versions.write(version(2), look)
    assert seen == [(1, None, False)]
    assert versions.get(2) == written
    assert set(written.files) == {MODEL, STATE, "config.json", "qwen.tiktoken"}
    assert versions.newest() == 2


def test_of_a_version_that_fails_while_it_is_written_nothing_remains(versions: Versions) -> None:
    grow(versions, 1)

    def full(folder: Path) -> None:
        fill(folder)
        with room_for(0):
            save_file({"weight": torch.zeros(9)}, folder / STATE)

    with pytest.raises(DiskFull, match=rf"^{versions.root} cannot be written: .*File too large"):
        with versions.writing():
            versions.write(version(2), full)
    assert not versions.place(2).exists()
    grow(versions, 2)
    assert versions.newest() == 2


def test_leftovers_of_a_dead_writer_are_no_version_and_are_removed(versions: Versions) -> None:
    grow(versions, 1)
    versions.place(2).mkdir()
    fill(versions.place(2))
    assert versions.newest() == 1
    with versions.writing():
        assert not versions.place(2).exists()


def test_a_version_whose_ancestor_is_not_the_newest_is_refused(versions: Versions) -> None:
    grow(versions, 2)
    with versions.writing(), pytest.raises(VersionTaken, match="version 2 cannot follow version 2"):
        versions.write(version(2), fill)
    assert versions.numbers() == [0, 1, 2]


def test_pruning_keeps_the_newest_weights_a_ladder_and_every_manifest(versions: Versions) -> None:
    grow(versions, 5)
    assert versions.prune(2) == (1, 3)
    assert [number for number in versions.numbers() if versions.has_weights(number)] == [0, 2, 4, 5]
    assert [each.number for each in versions.all()] == [0, 1, 2, 3, 4, 5]
    assert versions.prune(2) == ()


def test_weights_that_are_to_go_go_however_new(versions: Versions) -> None:
    grow(versions, 3)
    assert versions.remove_weights([0, 2, 3, 9]) == (2, 3)
    assert [number for number in versions.numbers() if versions.has_weights(number)] == [0, 1]


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_the_ladder_has_few_rungs_and_one_at_each_doubling_of_the_distance(newest: int, back: int) -> None:
    rungs = [number for number in range(1, newest + 1) if is_rung(number, newest=newest)]
    assert len(rungs) <= newest.bit_length()
    if newest >= 3 * back:
        assert any(back <= newest - number < 3 * back for number in rungs)


@pytest.mark.parametrize("newest", [1, 2, 37, 256])
def test_a_rung_that_is_kept_now_was_kept_before(newest: int) -> None:
    """Else its weights would be gone by now."""
    now = {number for number in range(1, newest + 1) if is_rung(number, newest=newest)}
    before = {number for number in range(1, newest) if is_rung(number, newest=newest - 1)}
    assert now - {newest} <= before


def test_two_processes_trim_one_disk_together(tmp_path: Path) -> None:
    """The publisher after it loaded a version, the learner after it wrote one."""
    root, shared = tmp_path / "versions", opened(folder(tmp_path))
    grow(Versions(root=root, base=a_base(tmp_path), remote=shared), 24)
    both = [Versions(root=root, base=tmp_path / "base", remote=shared) for _ in range(2)]
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda each: each.trim(1), both))
    assert [number for number in range(1, 25) if both[0].on_disk(number)] == [24]


def test_gone_weights_are_named_with_those_that_are_left(versions: Versions) -> None:
    grow(versions, 3)
    versions.prune(1)
    with pytest.raises(SettingError, match=r"version 1 are not in .*; those of 0, 2, 3 are"):
        versions.weights(1)
    assert versions.weights(0) == versions.base


def test_two_learners_cannot_share_a_folder(versions: Versions) -> None:
    held = (
        "import sys; from pathlib import Path; from afterwit.checkpoints.versions import Versions\n"
        "with Versions(root=Path(sys.argv[1]), base=Path('.')).learning():\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", held, str(versions.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": "src"},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(SettingError, match=f"only one learner may run: process {other.pid}"):
            with versions.learning():
                pass
        other.kill()
    with versions.learning():
        pass


def test_the_scratch_of_a_killed_learner_goes_with_the_next_one(versions: Versions) -> None:
    grow(versions, 1)
    with versions.learning(), versions.scratch() as scratch:
        left = scratch.root.with_name(scratch.root.name + "left")
        (left / "000001").mkdir(parents=True)
        assert scratch.root.parent == versions.root
    assert not scratch.root.exists()
    assert left.exists()
    with versions.learning():
        assert not left.exists()
    assert versions.newest() == 1


def test_a_second_writer_waits_for_the_first(versions: Versions) -> None:
    grow(versions, 1)
    rolled = threading.Thread(target=lambda: roll_back(versions, 1, now=9.0))
    with versions.writing():
        rolled.start()
        versions.write(version(2), fill)
    rolled.join()
    third = versions.get(3)
    assert third is not None
    assert third.reverts == (2,)


def test_a_rollback_is_a_new_version_with_the_old_files(versions: Versions) -> None:
    grow(versions, 4)
    made = roll_back(versions, 2, now=10.0)
    assert made == Version(
        number=5,
        parent=4,
        origin=Origin.ROLLBACK,
        created=10.0,
        restores=2,
        reverts=(3, 4),
        probe=PROBE,
        files=versions.all()[2].files,
    )
    assert versions.get(5) == made
    old, new = ({path.name: path.read_text() for path in versions.place(n).iterdir()} for n in (2, 5))
    assert new | {manifest.NAME: ""} == old | {manifest.NAME: ""}
    assert {MODEL, STATE, "config.json", "qwen.tiktoken"} < set(new)
    versions.prune(1)
    assert (versions.place(5) / MODEL).read_text() == "weights of 000002"


def test_a_rollback_to_the_base_is_the_base_and_takes_no_room(versions: Versions) -> None:
    grow(versions, 2)
    made = roll_back(versions, 0, now=10.0)
    assert made.reverts == (1, 2)
    assert versions.weights(3) == versions.base
    assert [path.name for path in versions.place(3).iterdir()] == [manifest.NAME]
    grow(versions, 4)
    roll_back(versions, 3, now=11.0)
    assert versions.weights(5) == versions.base
    grow(versions, 7)
    assert versions.prune(1) == (1, 2)
    assert [number for number in versions.numbers() if versions.has_weights(number)] == [0, 3, 4, 5, 6, 7]


def test_a_rollback_to_nowhere_names_the_newest_of_many_versions(versions: Versions) -> None:
    grow(versions, 25)
    with pytest.raises(SettingError, match=r"no version 99; there are: \.\.\., 6, 7, .*, 25$"):
        roll_back(versions, 99, now=10.0)


@pytest.mark.parametrize(
    ("target", "words"), [(9, "no version 9; there are: 0, 1, 2"), (2, "newest already")]
)
def test_a_rollback_to_nowhere_is_refused(versions: Versions, target: int, words: str) -> None:
    grow(versions, 2)
    with pytest.raises(SettingError, match=words):
        roll_back(versions, target, now=10.0)
    assert versions.newest() == 2


def test_a_rollback_to_pruned_weights_is_refused_before_anything_is_written(versions: Versions) -> None:
    grow(versions, 3)
    versions.prune(1)
    with pytest.raises(SettingError, match="weights of version 1"):
        roll_back(versions, 1, now=10.0)
    assert versions.numbers() == [0, 1, 2, 3]


def test_rollbacks_of_rollbacks_revert_just_what_goes_away(versions: Versions) -> None:
    """1, 2, back to 1 (3), 4, back to 2 (5): version 2 is in again, version 4 goes."""
    grow(versions, 2)
    roll_back(versions, 1, now=10.0)
    grow(versions, 4)
    fifth = roll_back(versions, 2, now=11.0)
    by_number = {each.number: each for each in versions.all()}
    assert fifth.reverts == (4,)
    assert [learned(number, by_number) for number in (3, 4, 5)] == [{1}, {1, 4}, {1, 2}]
    assert taken_back(0, versions.all()) == (1, 2)


def test_before_the_learners_first_start_there_is_nothing_to_take_back(versions: Versions) -> None:
    for target in (0, 3):
        with pytest.raises(SettingError, match="nothing has been learned here yet"):
            roll_back(versions, target, now=1.0)
    assert versions.numbers() == []


@pytest.mark.parametrize("text", ["", '{"number": 1, ', "[]", "3", '{"number": 1}', "\x00\xff"])
def test_a_damaged_manifest_is_named_with_what_to_do(versions: Versions, text: str) -> None:
    grow(versions, 1)
    (versions.place(1) / manifest.NAME).write_text(text)
    for read in (versions.all, lambda: versions.get(1)):
        with pytest.raises(
            VersionDamaged, match=r"000001/manifest.json cannot be read \(.+\): .* remove the folder"
        ):
            read()


@pytest.mark.parametrize("name", [MODEL, STATE, "config.json", "qwen.tiktoken"])
def test_a_file_that_is_not_as_it_was_written_is_named_with_the_version_to_return_to(
    alone: Versions, name: str
) -> None:
    grow(alone, 3)
    alone.verify(3)
    damage(alone.place(3) / name)
    with pytest.raises(
        VersionDamaged, match=rf"000003/{name} is damaged: .* return to version 2 with `afterwit rollback 2`"
    ):
        alone.verify(3)
    alone.verify(roll_back(alone, 2, now=9.0).number)


def test_the_version_to_return_to_is_whole_itself(alone: Versions) -> None:
    grow(alone, 3)
    for number in (2, 3):
        damage(alone.place(number) / MODEL)
    with pytest.raises(VersionDamaged, match="afterwit rollback 1`"):
        alone.verify(3)
    damage(alone.place(1) / STATE)
    with pytest.raises(VersionDamaged, match="afterwit rollback 0`"):
        alone.verify(3)


def test_a_missing_file_is_named(alone: Versions) -> None:
    grow(alone, 1)
    (alone.place(1) / STATE).unlink()
    with pytest.raises(VersionDamaged, match=f"{STATE} cannot be read"):
        alone.verify(1)


def test_a_rollback_to_damaged_weights_is_refused_before_anything_is_written(alone: Versions) -> None:
    grow(alone, 2)
    damage(alone.place(1) / MODEL)
    with pytest.raises(VersionDamaged, match="afterwit rollback 0`"):
        roll_back(alone, 1, now=9.0)
    assert alone.numbers() == [0, 1, 2]


def test_the_base_and_a_rollback_to_it_have_nothing_to_verify(versions: Versions) -> None:
    grow(versions, 1)
    versions.verify(0)
    versions.verify(roll_back(versions, 0, now=9.0).number)


def damage(path: Path) -> None:
    """Change one byte, nothing else."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_full_disk_keeps_no_learner_from_its_lock(versions: Versions) -> None:
    with room_for(0), versions.learning(), pytest.raises(AlreadyRunning), versions.learning():
        raise AssertionError("two learners")
