"""A kill at any moment loses nothing and trains nothing twice."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.learning.passes import Phase
from afterwit.objective.settings import ObjectiveSettings
from afterwit.verdict import JudgedTurn
from tests.fakes.judged_samples import a_sample
from tests.learning.stage.learning import (
    Place,
    fill,
    learn_and_die,
    states,
    tensor_files,
    trained,
)

KILLS = [
    (Phase.SCORING, 1),
    (Phase.STEPPED, 2),
    (Phase.WRITING, 2),
    (Phase.WRITTEN, 1),
    (Phase.COMMITTED, 1),
]
MORE_KILLS = [
    (Phase.CLAIMED, 1),
    (Phase.STEPPED, 1),
    (Phase.WRITING, 1),
    (Phase.CLAIMED, 2),
    (Phase.WRITTEN, 2),
]
FAST_KILLS = {"whole": KILLS[4:], "lora": KILLS[2:3]}
"""While a version is written, and after it."""


WAYS = {"whole": {}, "lora": {"lora_rank": 16, "teacher": "ema"}}


@pytest.fixture(scope="module", params=WAYS.values(), ids=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, object]:
    """The trained weights: all, or an adapter, with a teacher that follows."""
    return request.param


@pytest.fixture(scope="module")
def undisturbed(
    way: dict[str, object], base: Path, renderer: Renderer, tmp_path_factory: pytest.TempPathFactory
) -> Place:
    """The same samples, learned without a crash."""
    place = busy(Place(home=tmp_path_factory.mktemp("undisturbed"), base=base), way)
    fill(place, [a_sample(renderer, number) for number in range(12)])
    place.drain()
    return place


def busy(place: Place, way: dict[str, object]) -> Place:
    """With everything that reads the past: epochs, replay, a running baseline, few versions kept."""
    objective = ObjectiveSettings(baseline="running", beta=0.1)
    return replace(place.but(epochs=2, replay=2, keep_versions=2, **way), objective=objective)


def tensors(place: Place) -> dict[str, bytes]:
    """Weights and the learner's state of the last version."""
    return tensor_files(place.versions.place(3))


@pytest.mark.parametrize(
    ("way", "phase", "time"),
    [
        pytest.param(
            how,
            *kill,
            id=f"{name}-{kill[0]}-{kill[1]}",
            marks=() if kill in FAST_KILLS[name] else pytest.mark.slow,
        )
        for name, how in WAYS.items()
        for kill in (*KILLS, *MORE_KILLS)
    ],
    indirect=["way"],
)
def test_a_kill_loses_nothing_and_trains_nothing_twice(
    place: Place,
    samples: Callable[..., list[JudgedTurn]],
    undisturbed: Place,
    way: dict[str, object],
    processes: ForkServerContext,
    phase: Phase,
    time: int,
) -> None:
    place = busy(place, way)
    fill(place, samples(*range(12)))
    process = processes.Process(target=learn_and_die, args=(place, phase, time))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    place.drain()
    times = Counter(turn for turns in trained(place) for turn in turns)
    assert times == {f"turn{number:04d}": 1 for number in range(12)}
    assert states(place) == states(undisturbed)
    assert trained(place) == trained(undisturbed)
    assert tensors(place) == tensors(undisturbed)
    assert [number for number in (1, 2, 3) if place.versions.has_weights(number)] == [2, 3]
    assert len(list(place.versions.root.glob("[0-9]*"))) == 4


@pytest.mark.slow
def test_a_learner_killed_again_and_again_learns_what_an_undisturbed_one_does(
    place: Place,
    samples: Callable[..., list[JudgedTurn]],
    undisturbed: Place,
    way: dict[str, object],
    processes: ForkServerContext,
) -> None:
    """At random moments: between bytes, inside SQLite, while loading."""
    place = busy(place, way).but(max_attempts=1000)
    fill(place, samples(*range(12)))
    random, kills = Random(7), 0
    while kills < 40:
        process = processes.Process(target=place.drain)
        process.start()
        process.join(random.uniform(0.0, 0.4))
        kills += process.exitcode is None
        process.kill()
        process.join()
    place.drain()
    assert trained(place) == trained(undisturbed)
    assert states(place) == states(undisturbed)
    assert tensors(place) == tensors(undisturbed)
