"""LoRA: an adapter on the base, against PEFT's own and against a plain update."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions, roll_back
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.errors import SettingError, VersionDamaged
from afterwit.learning.models import name_of
from afterwit.learning.passes import Packing, probe, response_logits
from afterwit.learning.policy import Policy
from afterwit.learning.settings import LearnerSettings, Precision
from afterwit.learning.update import update
from afterwit.objective.settings import ObjectiveSettings
from afterwit.weights.adapter import TENSORS
from tests.fakes.adapters import by_peft, noise, plain
from tests.fakes.models import reweighted, tiny_llama
from tests.fakes.renderers import renderer_of
from tests.learning.test_lm_head import ROWS
from tests.learning.test_policy import go_on, trainer_in
from tests.learning.test_update import BY_TERM, batch, plain_update
from tests.learning.updates import (
    EXACT,
    Given,
    adapter_of,
    frozen,
    furthest,
    policy_of,
    quiet,
    read_only,
    weights,
)
from tests.packing.forests import precise
from tests.products import some

LORA = replace(EXACT, lora_rank=16, lora_alpha=32.0)
TAUGHT = [each for each in BY_TERM if each.values[0].needs_teacher and each.values[0].subset != "overlap"]
"""A teacher chosen at random may share no id with the student, and then an overlap teaches nothing."""
DTYPES: tuple[Precision, ...] = ("float32", "bfloat16", "float64")


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def base(request: pytest.FixtureRequest, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tied head, and one with a head of its own."""
    return base if request.param == "qwen3" else tiny_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that has moved away from the base."""
    return noise(tmp_path_factory.mktemp("student") / "adapter", base, seed=3, rank=16, alpha=32.0)


@pytest.fixture(scope="module")
def other(base: Path, tmp_path_factory: pytest.TempPathFactory) -> PreTrainedModel:
    """Another model of this shape."""
    return frozen(reweighted(tmp_path_factory.mktemp("other"), base, seed=9))


@pytest.fixture(scope="module")
def renderer(base: Path) -> Renderer:
    return renderer_of(base)


@pytest.fixture(scope="module")
def at_home(base: Path, renderer: Renderer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two updates of an adapter."""
    home = tmp_path_factory.mktemp("learned")
    go_on(trainer_in(home, base, renderer, lora_rank=16), renderer, range(2))
    return home


@pytest.fixture
def learned(at_home: Path, base: Path, tmp_path: Path) -> Versions:
    """A copy of these versions, to change."""
    return Versions(root=shutil.copytree(at_home, tmp_path / "learned"), base=base)


def logits(model: torch.nn.Module) -> Tensor:
    with torch.no_grad():
        return torch.cat(response_logits(model, ROWS))


@pytest.mark.parametrize("dtype", some(2, DTYPES))
def test_a_fresh_adapter_is_the_base_exactly(dtype: Precision, base: Path) -> None:
    settings = replace(LORA, dtype=dtype)
    policy, whole = policy_of(base, settings), policy_of(base, replace(settings, lora_rank=0))
    assert policy.trained.base is not None
    assert torch.equal(logits(policy.model), logits(whole.model))
    assert torch.equal(logits(policy.trained.base), logits(whole.model))
    fresh, plain = probe(policy.model), probe(whole.model)
    assert fresh.logprobs == fresh.amplified == plain.logprobs


def test_the_adapter_is_fp32_whatever_the_base_computes_in(base: Path) -> None:
    for dtype, own in (("float32", torch.float32), ("bfloat16", torch.float32), ("float64", torch.float64)):
        policy = policy_of(base, replace(LORA, dtype=dtype))
        assert {tensor.dtype for tensor in policy.masters.named.values()} == {own}
        assert policy.model.dtype is getattr(torch, dtype)
        assert not policy.masters.separate


def test_every_linear_layer_but_the_head_is_adapted_and_nothing_else_trains(base: Path) -> None:
    policy = policy_of(base, LORA)
    linear = {name for name, module in plain(base).named_modules() if isinstance(module, torch.nn.Linear)}
    expected = {
        f"{name}.lora_{factor}.default.weight" for name in linear - {"lm_head"} for factor in ("A", "B")
    }
    assert policy.masters.named.keys() == expected
    assert {name for name, own in policy.model.named_parameters() if own.requires_grad} == expected


def test_the_base_is_in_memory_once(base: Path) -> None:
    """Student, base and mean together hold the model's weights, and two adapters."""
    policy = policy_of(base, replace(LORA, teacher="ema"))
    assert policy.trained.base is not None
    assert policy.ema is not None
    models = (policy.model, policy.trained.base, policy.ema.model)
    held = {own.data_ptr(): own.nbytes for model in models for own in model.parameters()}
    own = sum(tensor.nbytes for tensor in policy.masters.named.values())
    assert sum(held.values()) == sum(tensor.nbytes for tensor in frozen(base).parameters()) + 2 * own


@pytest.mark.slow  # a process of its own
@pytest.mark.parametrize("base", ["llama"], indirect=True)
def test_the_draw_is_the_same_in_every_process(base: Path, tmp_path: Path) -> None:
    draw = (
        "import sys; from pathlib import Path; from afterwit.learning.policy import Policy\n"
        "from afterwit.learning.settings import LearnerSettings\n"
        "from afterwit.checkpoints.versions import Versions\n"
        "base, out = map(Path, sys.argv[1:]); out.mkdir()\n"
        "policy = Policy.load(Versions(root=out / 'none', base=base), 0, LearnerSettings(device='cpu'))\n"
        "policy.trained.write(out, base)"
    )
    environment = {"PYTHONPATH": "src", "PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", draw, base, tmp_path / "there"], env=environment, check=True)
    here = tmp_path / "here"
    here.mkdir()
    policy = policy_of(base, LearnerSettings(device="cpu"))
    policy.trained.write(here, base)
    for path in here.iterdir():
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes()
    for name, tensor in weights(policy).items():
        bound = tensor.shape[1] ** -0.5  # U(-1/sqrt(in), 1/sqrt(in)), PEFT's own
        assert not tensor.any() if "lora_B" in name else bound * 0.9 < tensor.abs().max() <= bound


@pytest.mark.parametrize("base", [pytest.param("qwen3", marks=pytest.mark.slow), "llama"], indirect=True)
@pytest.mark.parametrize("objective", some(2, BY_TERM[8:]))
def test_an_update_is_the_plain_update_of_pefts_adapter(
    objective: ObjectiveSettings, student: Path, base: Path, renderer: Renderer
) -> None:
    items = batch(renderer, objective)
    theirs = PeftModel.from_pretrained(plain(base, torch.float64), student, is_trainable=True)
    expected, loss = plain_update(theirs, read_only(base), items, objective)
    policy = adapter_of(student, base, LORA)
    before = weights(policy)
    metrics, _ = update(policy, Given(policy.trained.base, LORA), items, objective, LORA, quiet)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
    found = {f"base_model.model.{name}": tensor for name, tensor in weights(policy).items()}
    assert found.keys() == expected.keys()
    # AdamW's first step is nearly the gradient's sign; packed rows and norms in fp32 move it where it is 0.
    steps = torch.cat([(found[name] - expected[name]).flatten() for name in found]).abs()
    assert steps.mean() < 1e-3 * LORA.lr
    assert furthest(weights(policy), before) > 0.9 * LORA.lr


@pytest.mark.parametrize("base", ["llama"], indirect=True)
@pytest.mark.parametrize("objective", some(2, TAUGHT))
def test_under_lora_the_distillation_term_is_not_ignored(
    objective: ObjectiveSettings, student: Path, other: PreTrainedModel, renderer: Renderer, base: Path
) -> None:
    """Alone it moves the adapter, and where to depends on the teacher."""
    alone = replace(objective, w_rl=0.0, beta=0.0, entropy_coef=0.0)
    items = batch(renderer, replace(alone, w_rl=1.0))
    norms, steps = [], []
    for teacher in (None, other):
        policy = adapter_of(student, base, LORA)
        found, _ = update(policy, Given(teacher or policy.trained.base, LORA), items, alone, LORA, quiet)
        norms.append(found["grad_norm"])
        steps.append(weights(policy))
    assert min(norms) > 1e-3
    assert furthest(*steps) > LORA.lr
    assert found["opd_samples"] == sum(bool(item.teachers) for item in items)


@pytest.mark.parametrize(
    ("base", "teacher"),
    [
        ("qwen3", "base"),
        pytest.param("llama", "live", marks=pytest.mark.slow),
        pytest.param("qwen3", "ema", marks=pytest.mark.slow),
    ],
    indirect=["base"],
)
def test_neither_passes_nor_packing_nor_head_nor_recomputation_change_the_update(
    student: Path, base: Path, renderer: Renderer, teacher: str
) -> None:
    objective = ObjectiveSettings(beta=0.1)
    items = batch(renderer, objective)
    results = []
    for more in (
        {},
        {"packing": "off"},
        {"loss_backend": "plain"},
        {"loss_backend": "plain", "packing": "off", "micro_batch_tokens": 1},
        {"checkpointing": True},
        {"micro_batch_tokens": 24},  # by default long passes recompute
    ):
        settings = replace(LORA, teacher=teacher, epochs=2, **more)
        policy = adapter_of(student, base, settings)
        precise(policy.model), precise(policy.trained.base)
        if policy.ema is not None:
            precise(policy.ema.model)
        metrics, _ = update(policy, Given(policy.trained.base, settings), items, objective, settings, quiet)
        results.append((weights(policy), metrics))
    for found, metrics in results[1:]:
        assert metrics == pytest.approx(results[0][1], rel=1e-9, abs=1e-11)
        assert furthest(found, results[0][0]) < 1e-8
    assert Packing.of(LORA, policy.model, policy.trained.base).allowed


@pytest.mark.parametrize("base", ["qwen3"], indirect=True)
def test_bfloat16_moves_the_fp32_adapter_and_no_weight_of_the_base(
    student: Path, base: Path, renderer: Renderer
) -> None:
    objective, norms = ObjectiveSettings(), []
    items = batch(renderer, objective)
    for dtype, checkpointing in (("float32", False), ("bfloat16", False), ("bfloat16", True)):
        settings = replace(LORA, dtype=dtype, checkpointing=checkpointing, lr=1e-6)
        policy = adapter_of(student, base, settings)
        before, logits_before = weights(policy), logits(policy.trained.base)
        found, _ = update(policy, Given(policy.trained.base, settings), items, objective, settings, quiet)
        norms.append(found["grad_norm"])
        assert 0 < furthest(weights(policy), before) < 2e-6
        assert torch.equal(logits(policy.trained.base), logits_before)
        fresh = frozen(base, getattr(torch, dtype))
        pairs = zip(policy.trained.base.parameters(), fresh.parameters(), strict=True)
        assert all(torch.equal(own, kept) for own, kept in pairs)
    assert norms[1] == pytest.approx(norms[0], rel=0.1)
    assert norms[2] == pytest.approx(norms[0], rel=0.1)


def test_a_version_is_an_adapter_that_peft_loads(base: Path, renderer: Renderer, learned: Versions) -> None:
    folder = learned.weights(2)
    found = probe(by_peft(base, folder, torch.float32).get_base_model())
    assert found.logprobs == pytest.approx(learned.get(2).probe.logprobs, abs=1e-5)
    names = {path.name for path in folder.iterdir()}
    tokenizer = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    ours = {"manifest.json", "learner.state", "adapter_config.json", "adapter_model.safetensors"}
    assert names == tokenizer | ours
    assert Renderer.load(folder).tokenizer_hash == renderer.tokenizer_hash


@pytest.mark.parametrize("base", ["qwen3"], indirect=True)
def test_a_version_names_no_path_and_is_loaded_after_its_home_moved(
    base: Path, renderer: Renderer, at_home: Path, learned: Versions
) -> None:
    for path in learned.weights(2).glob("*.json"):
        assert str(at_home) not in path.read_text()
        assert str(base.parent) not in path.read_text()
    config = json.loads((learned.weights(2) / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == base.name
    assert (config["r"], config["lora_alpha"]) == (16, 32)
    moved = trainer_in(learned.root, base, renderer, lora_rank=16)
    assert probe(moved.policy().model) == learned.get(2).probe


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (
            "hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca",
            "Qwen/Qwen3-0.6B",
        ),
        ("hub/models--gpt2/snapshots/607a30d783dfa663caf39e06633721c8d4cfcd7e", "gpt2"),
        ("models/my-model", "my-model"),
    ],
)
def test_a_base_is_named_as_others_know_it(folder: str, name: str, tmp_path: Path) -> None:
    assert name_of(tmp_path / folder) == name


@pytest.mark.parametrize(
    ("base", "dtype", "most"),
    [
        ("qwen3", "float32", 1e-4),
        pytest.param("llama", "bfloat16", 0.05, marks=pytest.mark.slow),
        pytest.param("llama", "float32", 1e-4, marks=pytest.mark.slow),
        pytest.param("qwen3", "bfloat16", 0.05, marks=pytest.mark.slow),
    ],
    indirect=["base"],
)
async def test_the_engine_gives_the_learners_log_probs_of_a_version(
    dtype: Precision, most: float, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer = trainer_in(tmp_path, base, renderer, dtype, lora_rank=16)
    engine = EmbeddedEngine.load(base, EmbeddedSettings(dtype=dtype, device="cpu"))
    for number in (1, 2):
        made = go_on(trainer, renderer, range(number - 1, number))
        await engine.stage(number, trainer.versions.weights(number))
        served = await engine.probe(made.probe.ids)
        await engine.promote()
        gaps = [abs(one - other) for one, other in zip(served, made.probe.logprobs, strict=True)]
        assert sum(gaps) / len(gaps) <= most
    await engine.close()


# Settings of another kind than the weights.


def whole(folder: Path, base: Path, renderer: Renderer) -> Versions:
    """An update of all weights."""
    trainer = trainer_in(folder, base, renderer)
    go_on(trainer, renderer, range(1))
    return trainer.versions


@pytest.mark.parametrize("base", ["llama"], indirect=True)
@pytest.mark.parametrize(
    ("there", "asked", "words"),
    [
        (
            0,
            {"lora_rank": 16},
            "holds full weights, but the settings train an adapter of rank 16 and alpha 32",
        ),
        (
            16,
            {"lora_rank": 0},
            "holds an adapter of rank 16 and alpha 32, but the settings train full weights",
        ),
        (16, {"lora_rank": 8}, "set learner.lora_rank = 16 and learner.lora_alpha = 32 to continue from it"),
        (16, {"lora_alpha": 16.0}, "but the settings train an adapter of rank 16 and alpha 16"),
    ],
)
def test_weights_of_another_kind_than_the_settings_are_notat_home_from(
    there: int,
    asked: dict[str, float],
    words: str,
    base: Path,
    renderer: Renderer,
    learned: Versions,
    tmp_path: Path,
) -> None:
    """The error names the setting to change; it also names the other way, to start over."""
    versions = learned if there else whole(tmp_path / "whole", base, renderer)
    newest = versions.newest()
    settings = replace(LearnerSettings(device="cpu", lora_rank=there), **asked)
    with pytest.raises(SettingError, match=f"version {newest} .*{words}") as refused:
        Policy.load(versions, newest, settings)
    assert "start over with `afterwit rollback 0`" in str(refused.value)
    roll_back(versions, 0, now=9.0)
    policy = Policy.load(versions, newest + 1, settings)
    assert probe(policy.model).logprobs == versions.get(0).probe.logprobs
    assert not policy.optimizer.state


@pytest.mark.parametrize("base", ["qwen3"], indirect=True)
def test_going_back_to_another_kind_is_going_back_to_its_settings(
    base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    versions = whole(tmp_path, base, renderer)
    roll_back(versions, 0, now=9.0)
    go_on(trainer_in(tmp_path, base, renderer, lora_rank=16), renderer, range(1, 2))
    roll_back(versions, 1, now=10.0)
    with pytest.raises(SettingError, match=r"version 4 holds full weights.*set learner.lora_rank = 0 "):
        trainer_in(tmp_path, base, renderer, lora_rank=16)
    assert trainer_in(tmp_path, base, renderer, lora_rank=0).policy().number == 4


@pytest.mark.parametrize("base", ["qwen3"], indirect=True)
@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "learner.state"])
def test_a_damaged_adapter_is_named_and_a_rollback_helps(
    name: str, base: Path, renderer: Renderer, learned: Versions
) -> None:
    (learned.place(2) / name).write_bytes(b"half of")
    with pytest.raises(VersionDamaged, match=r"000002.*afterwit rollback"):
        trainer_in(learned.root, base, renderer, lora_rank=16)
    assert roll_back(learned, 1, now=2.0).number == 3
    assert trainer_in(learned.root, base, renderer, lora_rank=16).policy().number == 3


def test_an_adapter_of_another_model_is_refused(base: Path, student: Path, tmp_path: Path) -> None:
    deeper = tiny_llama(tmp_path / "deeper", num_hidden_layers=3)
    with pytest.raises(
        VersionDamaged, match=r"is not an adapter of this model: base_model\.model\.model\.layers"
    ):
        adapter_of(student, deeper, LORA)
    assert TENSORS in {path.name for path in student.iterdir()}
