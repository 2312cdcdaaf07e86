"""A whole update on a device against the plain one in float32 on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.learning.batch import Item
from afterwit.learning.models import device_of, load_model
from afterwit.learning.passes import probe
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.settings import ObjectiveSettings
from afterwit.weights.weights import return_freed
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted
from tests.learning.updates import Given, items_of, policy_of, quiet, weights

HINTS = ("Say it in one word.", "Read the file before you answer.", "Say it in one word, without a greeting.")
PLAIN = LearnerSettings(dtype="float32", device="cpu", lr=1e-3, loss_backend="plain", packing="off", epochs=2)
MEASURED = (
    *("rl", "opd", "entropy", "reference_kl", "loss", "grad_norm"),
    *("teacher_gap", "mismatch_mean", "ratio_mean", "ratio_distance"),
)
OBJECTIVES = {
    "reference_kl": ObjectiveSettings(beta=0.1, baseline="running", hint_selection="shortest"),
    "everything": ObjectiveSettings(beta=0.1, entropy_coef=0.01, tail_bucket=True, hint_selection="longest"),
    "distilled": ObjectiveSettings(objective="topk_distill", beta=0, hint_selection="shortest"),
}


def items_for(renderer: Renderer, objective: ObjectiveSettings) -> list[Item]:
    """Retries of one prompt with three hints each, which pack, and a turn without any."""
    samples = [
        a_sample(renderer, number, reward=reward, hints=hints, tokens=tokens)
        for number, (reward, hints, tokens) in enumerate(
            [(-1, HINTS, 6), (1, HINTS[:1], 1), (-1, HINTS[:1], 9)]
        )
    ]
    found = items_of(samples, renderer, objective)
    return [*found, found[0], replace(found[2], teachers=(), hints=(), reward=1.0)]


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has moved away from the base."""
    return reweighted(tmp_path_factory.mktemp("student"), base, seed=3)


def updated(
    student: Path, base: Path, items: list[Item], objective: ObjectiveSettings, settings: LearnerSettings
) -> tuple[Tensor, dict[str, float]]:
    """The step of every weight that trains, in one row; and the metrics."""
    policy = policy_of(student, settings)
    frozen = policy.trained.base or model_of(base, settings)
    before = weights(policy)
    metrics, _ = update(policy, Given(frozen, settings), items, objective, settings, quiet)
    after = weights(policy)
    return torch.cat([(after[name] - before[name]).flatten().cpu().double() for name in before]), metrics


def model_of(folder: Path, settings: LearnerSettings) -> PreTrainedModel:
    dtype, device = getattr(torch, settings.dtype), device_of(settings.device)
    return load_model(folder, dtype=dtype, device=device).requires_grad_(False)


@pytest.mark.parametrize(
    "rank", [pytest.param(0, id="full", marks=pytest.mark.slow), pytest.param(4, id="lora")]
)
@pytest.mark.parametrize(
    "objective",
    [
        pytest.param(objective, id=name, marks=() if name == "everything" else pytest.mark.gpu)
        for name, objective in OBJECTIVES.items()  # `learning` and `fused_head` have each on a CPU
    ],
)
@pytest.mark.parametrize(
    ("dtype", "near", "same_way"),
    [("float32", {"rel": 1e-3, "abs": 1e-4}, 0.999), ("bfloat16", {"rel": 0.1, "abs": 0.05}, 0.9)],
)
def test_an_update_is_the_plain_update_within_its_rounding(
    device: torch.device,
    student: Path,
    base: Path,
    renderer: Renderer,
    objective: ObjectiveSettings,
    rank: int,
    dtype: str,
    near: dict[str, float],
    same_way: float,
) -> None:
    """Fused, packed, with recomputed activations, in two epochs: the same numbers, and weights that go the
    same way. AdamW's first steps are nearly the gradient's sign, which rounding turns where it is nearly 0.
    """
    items, plain = items_for(renderer, objective), replace(PLAIN, lora_rank=rank)
    how = replace(
        plain, device=device.type, dtype=dtype, loss_backend="fused", packing="auto", checkpointing=True
    )
    expected, of_plain = updated(student, base, items, objective, plain)
    found, metrics = updated(student, base, items, objective, how)
    for name in MEASURED:
        assert metrics[name] == pytest.approx(of_plain[name], **near), name
    assert torch.cosine_similarity(found, expected, dim=0) > same_way


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-4), ("bfloat16", 0.05)])
def test_the_probe_of_a_device_passes_at_the_publisher(
    device: torch.device, base: Path, dtype: str, bound: float
) -> None:
    """Its log-probs agree with those of the CPU in float32 as an engine's must with the learner's."""
    here = probe(model_of(base, PLAIN))
    there = probe(model_of(base, replace(PLAIN, device=device.type, dtype=dtype)))
    assert there.ids == here.ids
    apart = [abs(one - other) for one, other in zip(there.logprobs, here.logprobs, strict=True)]
    assert sum(apart) / len(apart) <= bound


@pytest.mark.gpu
def test_freed_memory_of_a_gpu_is_left_to_the_engine(cuda: torch.device) -> None:
    return_freed()
    before, size = torch.cuda.memory_reserved(), 2**28
    freed = torch.empty(size, dtype=torch.uint8, device=cuda)
    del freed
    assert torch.cuda.memory_reserved() >= before + size
    return_freed()
    assert torch.cuda.memory_reserved() <= before
