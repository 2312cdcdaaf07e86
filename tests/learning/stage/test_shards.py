"""Full weights in shards: the weights of one process, and versions that any learner reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import torch

from afterwit.learning.distributed.sharded import read_state
from afterwit.learning.models import load_model
from afterwit.objective.settings import ObjectiveSettings
from afterwit.verdict import JudgedTurn
from tests.fakes.models import tiny_starcoder2
from tests.learning.stage.learning import Place, fill, states, trained, untimed
from tests.several import several

pytestmark = pytest.mark.cluster


def sharded(place: Place, **settings: object) -> Place:
    """Two epochs in passes of unequal number, with reference KL, and the running mean of rewards."""
    objective = ObjectiveSettings(baseline="running", beta=0.1, entropy_coef=0.01)
    chosen = {"dtype": "float64", "epochs": 2, "micro_batch_tokens": 200, "lora_rank": 0, "shards": 2}
    return replace(place.but(measure_effects=True, **chosen | settings), objective=objective)


def weights(place: Place, number: int) -> dict[str, torch.Tensor]:
    folder = place.versions.weights(number)
    model = load_model(folder, dtype=torch.float64, device=torch.device("cpu"))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((tensor - other[name]).abs().max()) for name, tensor in one.items())


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tiny_starcoder2(tmp_path / "model", tie_word_embeddings=request.param)


@pytest.mark.parametrize("head", ["fused", "plain"])
def test_shards_make_the_weights_of_one_process(
    model: Path,
    tmp_path: Path,
    samples: Callable[..., list[JudgedTurn]],
    processes: ForkServerContext,
    head: str,
) -> None:
    alone, shared = (
        sharded(Place(home=tmp_path / name, base=model), loss_backend=head) for name in ("one", "two")
    )
    for place in (alone, shared):
        place.home.mkdir()
        fill(place, [*samples(*range(6)), *samples(6, 7, tokens=40)])
    alone.drain()
    assert several(processes, 2, shared.drain_as_rank) == [None, None]
    assert states(shared) == states(alone)
    assert trained(shared) == trained(alone)
    assert alone.versions.newest() == 2
    assert apart(weights(shared, 2), weights(alone, 2)) < 1e-12
    for number in (1, 2):
        mine, theirs = (place.versions.get(number) for place in (shared, alone))
        assert mine is not None
        assert theirs is not None
        expected = untimed(theirs.metrics)
        expected.pop("plain_kl")  # of shards it is not measured: all ranks would have to run it
        assert untimed(mine.metrics) == pytest.approx(expected, abs=1e-9)
        assert mine.probe.logprobs == pytest.approx(theirs.probe.logprobs, abs=1e-9)
    state, expected = (read_state(place.versions.place(2)) for place in (shared, alone))
    kept = {name for name in state if not name.startswith("master.")}
    assert kept == expected.keys()
    assert max(float((state[name] - tensor).abs().max()) for name, tensor in expected.items()) < 1e-12


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_learner_that_starts_again_goes_on_to_the_bit(
    base: Path,
    tmp_path: Path,
    samples: Callable[..., list[JudgedTurn]],
    processes: ForkServerContext,
    dtype: str,
) -> None:
    whole, halves = (sharded(Place(home=tmp_path / name, base=base), dtype=dtype) for name in ("one", "two"))
    for place in (whole, halves):
        place.home.mkdir()
    fill(whole, samples(*range(8)))
    assert several(processes, 2, whole.drain_as_rank) == [None, None]
    for first in (0, 4):
        fill(halves, samples(*range(first, first + 4)))
        assert several(processes, 2, halves.drain_as_rank) == [None, None]
    assert trained(whole) == trained(halves)
    assert apart(weights(whole, 2), weights(halves, 2)) == 0.0
    one, other = (read_state(place.versions.place(2)) for place in (whole, halves))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_copies_of_shards_make_the_weights_of_one_process(
    exact: Path, tmp_path: Path, samples: Callable[..., list[JudgedTurn]], processes: ForkServerContext
) -> None:
    alone, shared = (sharded(Place(home=tmp_path / name, base=exact)) for name in ("one", "four"))
    for place in (alone, shared):
        place.home.mkdir()
        fill(place, samples(*range(4)))
    alone.drain()
    assert several(processes, 4, shared.drain_as_rank) == [None] * 4
    assert apart(weights(shared, 1), weights(alone, 1)) < 1e-12


def test_a_version_in_shards_is_gone_on_with_by_one_process_and_back(
    exact: Path, tmp_path: Path, samples: Callable[..., list[JudgedTurn]], processes: ForkServerContext
) -> None:
    alone, mixed = (sharded(Place(home=tmp_path / name, base=exact)) for name in ("one", "mixed"))
    for place in (alone, mixed):
        place.home.mkdir()
    fill(alone, samples(*range(12)))
    alone.drain()
    fill(mixed, samples(*range(4)))
    assert several(processes, 2, mixed.drain_as_rank) == [None, None]
    fill(mixed, samples(*range(4, 8)))
    mixed.drain()
    fill(mixed, samples(*range(8, 12)))
    assert several(processes, 2, mixed.drain_as_rank) == [None, None]
    assert trained(mixed) == trained(alone)
    assert apart(weights(mixed, 3), weights(alone, 3)) < 1e-12
