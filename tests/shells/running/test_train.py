"""`afterwit train`: it learns from all that waits, or prints why it learned nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from afterwit.build import store_of_model, versions_of
from afterwit.config import Settings, load
from afterwit.errors import NothingLearned, SettingError
from afterwit.running.train import learn, memory_shortage_named
from tests.engines.vllm.recorded import listening
from tests.engines.vllm.scoring import Scoring
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.models import tiny_qwen3
from tests.fakes.renderers import renderer_of
from tests.shells.running.several_learners import LEARNER, fill, trained


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("model"), num_hidden_layers=1)


@pytest.fixture
def settings(model: Path, tmp_path: Path) -> Settings:
    below = {"model": str(model), "learner": {"threads": 1, "mismatch_alarm": 100.0}}
    return load(home=tmp_path, below=below, environment={})


def train(settings: Settings, home: Path) -> None:
    learn(settings, home, stop=lambda: False, forever=False, wait=False)


def test_a_single_turn_is_learned(settings: Settings, model: Path, tmp_path: Path) -> None:
    store = store_of_model(settings, tmp_path, model)
    store_judged(store, [a_sample(renderer_of(model))])
    store.close()
    train(settings, tmp_path)
    assert [version.turns for version in versions_of(tmp_path, model).all()] == [(), ("turn0000",)]


PAIRS = (
    *(("base", "live"), ("live", "ema"), ("ema", "another checkpoint")),
    *(("server", "base"), ("another checkpoint", "base")),
)
"""Every teacher once, and every reference."""
KINDS = [
    *(
        pytest.param(
            {"teacher": one, "reference": other, "lora_rank": rank},
            marks=() if place % 2 == (rank == 0) else pytest.mark.slow,
        )
        for place, (one, other) in enumerate(PAIRS)
        for rank in (4, 0)
    ),
    pytest.param({"teacher": "ema", "adapters": "per_key"}, marks=pytest.mark.slow),
    pytest.param({"teacher": "server", "adapters": "per_key"}, marks=pytest.mark.slow),
    pytest.param(
        {"teacher": "another checkpoint", "teacher_device": "cpu", "reference_device": "cpu"},
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {"teacher": "server", "reference": "another checkpoint", "dtype": "bfloat16", "packing": "off"},
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
async def test_a_learner_starts_and_trains_with_every_kind_of_teacher_and_reference(
    kind: dict[str, object], model: Path, tmp_path: Path
) -> None:
    """As its process does: everything is loaded and tested before the first update."""
    other = tiny_qwen3(tmp_path / "other", seed=7, num_hidden_layers=1)
    learner = LEARNER | {
        name: str(other) if value == "another checkpoint" else value for name, value in kind.items()
    }
    server = Scoring(model, scores_given=False)
    async with listening(server) as url:
        if kind.get("teacher") == "server":
            learner["teacher_url"] = url
        below = {"model": str(model), "learner": learner, "objective": {"subset": "overlap"}}
        settings, home = load(home=tmp_path, below=below, environment={}), tmp_path
        fill(settings, model, home, *range(4))
        await asyncio.to_thread(train, settings, home)
    assert trained(home, model) == [f"turn{number:04d}" for number in range(4)]
    assert bool(server.scored) == (kind.get("teacher") == "server")


def test_without_a_turn_to_learn_from_it_fails_and_says_what_the_store_holds(
    settings: Settings, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(NothingLearned, match="no judged turn was left to train; the store holds no turns"):
        train(settings, tmp_path)
    store = store_of_model(settings, tmp_path, model)
    store_judged(store, [a_sample(renderer_of(model), 1, ids=(), logprobs=(), versions=(), forced=())])
    store.close()
    with pytest.raises(NothingLearned, match="holds 1 SKIPPED; turns ended as empty_response 1"):
        train(settings, tmp_path)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_too_little_memory_to_load_the_model_is_a_sentence(error: Exception) -> None:
    with pytest.raises(SettingError, match="too little memory to load models/large for learning"):
        with memory_shortage_named(Path("models/large")):
            raise error


def test_another_error_while_loading_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="a broken kernel"), memory_shortage_named(Path("models/large")):
        raise RuntimeError("a broken kernel")
