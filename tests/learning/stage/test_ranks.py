"""A learner of several processes learns what one does; it ends as one, and the store survives it as one."""

from __future__ import annotations

import math
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from safetensors.torch import load_file

from afterwit.checkpoints.manifest import STATE
from afterwit.errors import RankLost
from afterwit.learning.passes import Phase
from afterwit.lifecycle import Reason, State
from afterwit.objective.settings import ObjectiveSettings
from afterwit.verdict import JudgedTurn
from tests.learning.stage.learning import Place, fill, states, status, trained, untimed
from tests.products import some
from tests.several import several, started

WAYS = {
    "whole": {"lora_rank": 0},
    "lora": {"lora_rank": 4, "teacher": "ema", "epochs": 1},
}


def busy(place: Place, **way: object) -> Place:
    """Everything that reads the past, in passes of unequal number: three turns make one pass, or one each."""
    objective = ObjectiveSettings(baseline="running", beta=0.1, entropy_coef=0.01)
    settings = {"dtype": "float64", "epochs": 2, "replay": 1, "micro_batch_tokens": 200} | way
    return replace(place.but(measure_effects=True, **settings), objective=objective)


def apart(one: Place, other: Place, number: int) -> float:
    """The largest difference of weights and learner's state in a version of both."""
    furthest = 0.0
    folder = one.versions.place(number)
    for path in [*folder.glob("*.safetensors"), folder / STATE]:
        theirs = load_file(other.versions.place(number) / path.name)
        for name, tensor in load_file(path).items():
            furthest = max(furthest, float((tensor - theirs[name]).abs().max()))
    return furthest


@pytest.mark.parametrize("packing", ["auto", pytest.param("off", marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", some(2, WAYS.values()), ids=WAYS)
def test_two_processes_make_the_weights_of_one(
    exact: Path,
    tmp_path: Path,
    samples: Callable[..., list[JudgedTurn]],
    processes: ForkServerContext,
    way: dict[str, object],
    packing: str,
) -> None:
    alone, shared = (
        busy(Place(home=tmp_path / name, base=exact), packing=packing, **way) for name in ("alone", "shared")
    )
    for place in (alone, shared):
        place.home.mkdir()
        fill(place, [*samples(*range(6)), *samples(6, 7, 8, tokens=40)])
    alone.drain()
    assert several(processes, 2, shared.drain_as_rank) == [None, None]
    assert states(shared) == states(alone)
    assert trained(shared) == trained(alone)
    last = alone.versions.newest()
    assert last >= 2
    assert apart(alone, shared, last) < 1e-12
    for number in range(1, last + 1):
        mine, theirs = (place.versions.get(number) for place in (shared, alone))
        assert mine is not None
        assert theirs is not None
        assert untimed(mine.metrics) == pytest.approx(untimed(theirs.metrics), abs=1e-9)
        assert [effect.turn for effect in mine.effects] == [effect.turn for effect in theirs.effects]
        assert mine.effects[0].after == pytest.approx(theirs.effects[0].after, abs=1e-9)


@pytest.mark.slow  # two learners of two adapters, once by one process and once by two
def test_two_processes_make_each_persons_adapter_as_one_does(
    exact: Path, tmp_path: Path, samples: Callable[..., list[JudgedTurn]], processes: ForkServerContext
) -> None:
    alone, shared = (
        busy(Place(home=tmp_path / name, base=exact), lora_rank=4, teacher="ema", batch=2, teaches="both")
        for name in ("alone", "shared")
    )
    said = [*samples(*range(4)), *samples(10, 11, tokens=40), *samples(*range(20, 23))]
    people = ("key:ann", "key:bob", "key:eve")
    for place in (alone, shared):
        place.home.mkdir()
        fill(place, [of(people[index % 3], sample) for index, sample in enumerate(said)])
    alone.drain()
    assert several(processes, 2, shared.drain_as_rank) == [None, None]
    assert states(shared) == states(alone)
    assert shared.versions.chains() == alone.versions.chains()
    assert set(alone.versions.chains()) >= {"shared", *people}
    for chain in alone.versions.chains().values():
        assert apart(alone, shared, chain[-1]) < 1e-12


def of(adapter: str, sample: JudgedTurn) -> JudgedTurn:
    return replace(sample, turn=replace(sample.turn, adapter=adapter, scope=f"{adapter}/agent"))


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("rank", "phase"),
    [(0, Phase.SCORING), (1, Phase.SCORING), (0, Phase.STEPPED), (1, Phase.STEPPED), (0, Phase.WRITTEN)],
)
def test_the_death_of_any_process_ends_all_and_loses_nothing(
    place: Place,
    samples: Callable[..., list[JudgedTurn]],
    processes: ForkServerContext,
    rank: int,
    phase: Phase,
) -> None:
    place = busy(place)
    fill(place, samples(*range(8)))
    found = several(processes, 2, place.drain_as_rank, Killed(rank, phase))
    assert found[rank] is None
    assert isinstance(found[1 - rank], RankLost)
    place.drain()
    times = Counter(turn for turns in trained(place) for turn in turns)
    assert times == {f"turn{number:04d}": 1 for number in range(8)}


class Killed:
    """Watches a rank, and ends it by a signal when it first comes to a phase."""

    def __init__(self, rank: int, phase: Phase, number: int = signal.SIGKILL) -> None:
        self.rank, self.phase, self.number = rank, phase, number

    def __call__(self, rank: int, phase: Phase) -> None:
        if (rank, phase) == (self.rank, self.phase):
            os.kill(os.getpid(), self.number)


@pytest.mark.cluster
def test_a_process_that_hangs_ends_all(
    place: Place, samples: Callable[..., list[JudgedTurn]], processes: ForkServerContext
) -> None:
    place = busy(place, patience_s=5.0)
    fill(place, samples(*range(4)))
    hangs = Killed(1, Phase.SCORING, signal.SIGSTOP)
    with started(processes, 2, place.drain_as_rank, hangs) as (ranks, outcome):
        ranks[0].join()
        assert isinstance(outcome(0), RankLost)
    with place.store() as store:
        (held,) = {record.owner for record in store.turns()}
        assert held is not None, "a turn of the update in which it hung can be known by its lease"


class Failing:
    """Watches a rank, which fails once."""

    def __init__(self, rank: int) -> None:
        self.rank, self.times = rank, 0

    def __call__(self, rank: int, phase: Phase) -> None:
        if rank == self.rank and phase is Phase.SCORING and not self.times:
            self.times += 1
            raise MemoryError


@pytest.mark.cluster
@pytest.mark.parametrize("rank", [0, 1])
def test_an_update_that_one_process_fails_fails_in_all_and_is_tried_again(
    place: Place, samples: Callable[..., list[JudgedTurn]], processes: ForkServerContext, rank: int
) -> None:
    place = busy(place, replay=0)
    fill(place, samples(*range(4)))
    assert several(processes, 2, place.drain_as_rank, Failing(rank)) == [None, None]
    with place.store() as store:
        assert Counter(record.attempts for record in store.turns()) == {0: 3, 1: 1}
        assert "out of memory" in status(store).message or trained(place)


@pytest.mark.cluster
def test_an_update_that_is_not_finite_is_refused_by_all(
    place: Place, samples: Callable[..., list[JudgedTurn]], processes: ForkServerContext
) -> None:
    """The broken turn is in one process's passes alone; both go on with the next batch."""
    place = busy(place)
    place = replace(place, objective=replace(place.objective, is_cap=math.inf))
    broken = samples(1, logprobs=(-1e30,) * 6)
    fill(place, [*samples(0), *broken, *samples(*range(2, 8))])
    assert several(processes, 2, place.drain_as_rank) == [None, None]
    ends = {f"turn{number:04d}": Reason.NOT_FINITE if number < 4 else State.TRAINED for number in range(8)}
    assert states(place) == ends
