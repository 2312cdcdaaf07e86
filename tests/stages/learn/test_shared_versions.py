"""A learner whose versions other machines have too."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from afterwit.checkpoints import STATE, SharedVersions, VersionsSettings
from afterwit.core.judged_turn import JudgedTurn
from afterwit.core.lifecycle import State
from afterwit.learner.update import Phase
from tests.checkpoints.places import PLACES
from tests.checkpoints.places import Place as Sharing
from tests.stages.learning import Place, fill, learn_and_die, states, trained

Samples = Callable[..., list[JudgedTurn]]


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> VersionsSettings:
    sharing: Sharing = request.param
    return sharing(tmp_path)


@pytest.fixture
def place(place: Place, shared: VersionsSettings) -> Place:
    return replace(place.but(lora_rank=4), shared=shared)


@pytest.fixture
def alone(place: Place, samples: Samples, tmp_path: Path) -> Place:
    """What is learned from twelve turns without a place to share versions at, undisturbed."""
    (tmp_path / "alone").mkdir()
    alone = replace(place, home=tmp_path / "alone", shared=VersionsSettings())
    fill(alone, samples(*range(12)))
    alone.drain()
    return alone


def other(place: Place, tmp_path: Path) -> SharedVersions:
    """What another machine sees, which begins with an empty disk."""
    shutil.rmtree(tmp_path / "other", ignore_errors=True)
    versions = replace(place, home=tmp_path / "other").versions
    assert isinstance(versions, SharedVersions)
    versions.follow()
    return versions


def tensors(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_another_machine_has_the_learners_very_weights(
    place: Place, alone: Place, samples: Samples, tmp_path: Path
) -> None:
    fill(place, samples(*range(12)))
    place.drain()
    there = other(place, tmp_path)
    assert trained(place) == trained(alone)
    assert there.all() == place.versions.all()
    for number in (1, 2, 3):
        there.weights(number, state=True)
        there.verify(number)
        assert tensors(there.place(number)) == tensors(alone.versions.place(number))


def test_a_learner_on_an_empty_disk_goes_on_to_the_bit(place: Place, alone: Place, samples: Samples) -> None:
    fill(place, samples(*range(8)))
    place.drain()
    shutil.rmtree(place.versions.root)
    fill(place, samples(*range(8, 12)))
    place.drain()
    assert trained(place) == trained(alone)
    assert tensors(place.versions.place(3)) == tensors(alone.versions.place(3))


def test_a_learner_that_finds_no_state_begins_its_optimiser_anew(
    place: Place, alone: Place, samples: Samples
) -> None:
    place = replace(place, shared=replace(place.shared, state_every=3))
    fill(place, samples(*range(8)))
    place.drain()
    shutil.rmtree(place.versions.root)
    fill(place, samples(*range(8, 12)))
    place.drain()
    assert trained(place) == trained(alone)
    assert not (place.versions.place(2) / STATE).exists()
    assert (place.versions.place(3) / STATE).exists()
    assert tensors(place.versions.place(2)).keys() < tensors(alone.versions.place(2)).keys()
    assert tensors(place.versions.place(3)) != tensors(alone.versions.place(3))


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("phase", "time"), [(Phase.WRITING, 2), (Phase.WRITTEN, 1), (Phase.COMMITTED, 2), (Phase.STEPPED, 2)]
)
def test_a_kill_loses_nothing_and_trains_nothing_twice(
    place: Place,
    alone: Place,
    samples: Samples,
    processes: ForkServerContext,
    phase: Phase,
    time: int,
    tmp_path: Path,
) -> None:
    fill(place, samples(*range(12)))
    process = processes.Process(target=learn_and_die, args=(place, phase, time))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    for number in other(place, tmp_path).numbers():
        there = other(place, tmp_path)
        there.weights(number, state=True)
        there.verify(number)
    shutil.rmtree(place.versions.root)
    place.drain()
    assert Counter(turn for turns in trained(place) for turn in turns) == dict.fromkeys(states(place), 1)
    assert set(states(place).values()) == {State.TRAINED}
    assert tensors(place.versions.place(3)) == tensors(alone.versions.place(3))
