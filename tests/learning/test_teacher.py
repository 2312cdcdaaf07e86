"""A teacher, or a reference, that is another checkpoint."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from afterwit.chat_format.render import Renderer
from afterwit.errors import SettingError
from afterwit.learning.policy import FrozenModels
from afterwit.learning.settings import NAMED_MODELS, LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.settings import SUBSETS, ObjectiveSettings
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted, tiny_qwen3
from tests.learning.test_update import batch, plain_update
from tests.learning.updates import (
    EXACT,
    Given,
    frozen,
    furthest,
    items_of,
    policy_of,
    quiet,
    read_only,
    weights,
)
from tests.products import some

BIG = {"hidden_size": 48, "num_hidden_layers": 2}
OBJECTIVES = [
    ObjectiveSettings(subset=subset, beta=0.1, hint_selection="token_optimal") for subset in SUBSETS
] + [ObjectiveSettings(objective="topk_distill", beta=0.1), ObjectiveSettings(objective="combine", beta=0.1)]
IDS = [f"{o.objective}-{o.subset}" for o in OBJECTIVES]


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reweighted(tmp_path_factory.mktemp("student"), base, seed=3)


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wider and deeper model with the same tokenizer."""
    return tiny_qwen3(tmp_path_factory.mktemp("larger"), seed=5, **BIG)


def gradient(
    student: Path, models: FrozenModels, objective: ObjectiveSettings, renderer: Renderer, **settings: Any
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    how = replace(EXACT, **settings)
    policy = policy_of(student, how)
    metrics, _ = update(policy, models, batch(renderer, objective), objective, how, quiet)
    return weights(policy), metrics


@pytest.mark.parametrize("head", ["fused", "plain"])
def test_a_teacher_equal_to_the_base_gives_exactly_the_bases_gradient(
    student: Path, base: Path, renderer: Renderer, tmp_path: Path, head: str
) -> None:
    objective, twin = ObjectiveSettings(beta=0.1), shutil.copytree(base, tmp_path / "twin")
    named = replace(EXACT, loss_backend=head, teacher=str(twin), reference=str(twin))
    own, of_base = gradient(
        student, FrozenModels(base, replace(EXACT, loss_backend=head)), objective, renderer, loss_backend=head
    )
    other, of_twin = gradient(student, FrozenModels(base, named), objective, renderer, loss_backend=head)
    assert of_twin == of_base
    assert furthest(own, other) == 0.0


@pytest.mark.parametrize("objective", some(2, OBJECTIVES), ids=IDS)
def test_a_larger_teacher_agrees_with_the_plain_float64_update(
    objective: ObjectiveSettings, student: Path, base: Path, larger: Path, renderer: Renderer
) -> None:
    """Its own width, depth and head, fused and packed, as teacher and as reference."""
    settings = replace(EXACT, teacher=str(larger), reference=str(larger))
    items = batch(renderer, objective)
    expected, loss = plain_update(policy_of(student).model, read_only(larger), items, objective)
    found, metrics = gradient(student, FrozenModels(base, settings), objective, renderer)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
    steps = torch.cat([(found[name] - expected[name]).flatten() for name in found]).abs()
    assert steps.mean() < 1e-3 * EXACT.lr
    _, of_base = gradient(student, Given(frozen(base)), objective, renderer)
    assert abs(metrics["loss"] - of_base["loss"]) > 1e-4


def test_a_teachers_hints_are_packed_as_the_bases_are(
    student: Path, base: Path, larger: Path, renderer: Renderer
) -> None:
    """Packed and one by one differ by the norms' fp32 rounding alone."""
    objective = ObjectiveSettings(beta=0.1)
    settings = replace(EXACT, teacher=str(larger), reference=str(larger))
    models = FrozenModels(base, settings)
    _, packed = gradient(student, models, objective, renderer)
    _, alone = gradient(student, models, objective, renderer, packing="off", micro_batch_tokens=1)
    assert packed == pytest.approx(alone, rel=1e-5, abs=1e-6)


def test_teacher_and_reference_may_be_two_models(
    student: Path, base: Path, larger: Path, renderer: Renderer
) -> None:
    """The reference decides the KL, the teacher the rest."""
    objective = ObjectiveSettings(beta=0.1)

    def terms(**named: str) -> dict[str, float]:
        models = FrozenModels(base, replace(EXACT, **named))
        return gradient(student, models, objective, renderer)[1]

    neither, teacher, reference = terms(), terms(teacher=str(larger)), terms(reference=str(larger))
    assert teacher["reference_kl"] == pytest.approx(neither["reference_kl"], rel=1e-5)
    assert abs(teacher["opd"] - neither["opd"]) > 1e-4
    assert reference["opd"] == pytest.approx(neither["opd"], rel=1e-5)
    assert abs(reference["reference_kl"] - neither["reference_kl"]) > 1e-4


def test_under_an_adapter_another_teacher_teaches_too(base: Path, larger: Path, renderer: Renderer) -> None:
    settings = replace(EXACT, lora_rank=4, teacher=str(larger))
    policy, objective = policy_of(base, settings), ObjectiveSettings(objective="topk_opd", beta=0.0)
    items = items_of([a_sample(renderer, 0)], renderer, objective)
    metrics, _ = update(policy, FrozenModels(base, settings), items, objective, settings, quiet)
    assert metrics["grad_norm"] > 1e-3


def test_rows_that_pad_the_teachers_vocabulary_are_cut_off(
    student: Path, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    model = frozen(base)
    size = len(model.get_output_embeddings().weight)
    model.resize_token_embeddings(size + 7, mean_resizing=False)
    padded = shutil.copytree(base, tmp_path / "padded")
    model.save_pretrained(padded)
    objective = ObjectiveSettings(beta=0.1)
    _, own = gradient(student, FrozenModels(base, EXACT), objective, renderer)
    models = FrozenModels(base, replace(EXACT, teacher=str(padded), reference=str(padded)))
    _, other = gradient(student, models, objective, renderer)
    assert other == pytest.approx(own, rel=1e-9)


@pytest.mark.parametrize("setting", ["teacher", "reference"])
def test_another_tokenizer_is_refused_with_both_hashes(base: Path, tmp_path: Path, setting: str) -> None:
    other = shutil.copytree(base, tmp_path / "other")
    data = json.loads((other / "tokenizer.json").read_text())
    data["added_tokens"][0]["content"] = "<|another|>"
    (other / "tokenizer.json").write_text(json.dumps(data))
    hashes = [Renderer.load(folder).tokenizer_hash[:12] for folder in (other, base)]
    with pytest.raises(SettingError) as refused:
        FrozenModels(base, LearnerSettings(**{setting: str(other)}))
    assert f"learner.{setting} is {other}" in str(refused.value)
    assert all(each in str(refused.value) for each in hashes)


def test_a_teacher_that_is_neither_a_name_nor_a_model_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"has no tokenizer\.json"):
        FrozenModels(base, LearnerSettings(teacher=str(tmp_path)))


@pytest.mark.parametrize("role", ["teacher", "reference"])
def test_a_device_that_is_none_is_refused_by_the_name_of_its_setting(base: Path, role: str) -> None:
    settings = replace(EXACT, **{role: str(base), f"{role}_device": "warp"})
    policy, frozen = policy_of(base, settings), FrozenModels(base, settings)
    with pytest.raises(SettingError, match=f"learner.{role}_device is 'warp'"):
        getattr(frozen, role)(policy)


def test_every_name_of_a_teacher_has_its_model(base: Path) -> None:
    settings = replace(EXACT, teacher="ema")
    policy, frozen = policy_of(base, settings), FrozenModels(base, settings)
    for name in NAMED_MODELS:
        assert frozen.named(name).teacher(policy).config.vocab_size == policy.model.config.vocab_size
