"""The memory counted from shapes is what a model takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from afterwit.errors import SettingError
from afterwit.learning.models import Adapter, FullWeights, adamw, moments
from afterwit.learning.policy import Ema
from afterwit.learning.settings import LearnerSettings
from afterwit.planning.memory import (
    ModelShape,
    activations,
    embedded_memory,
    fitting,
    largest_pass,
    learner_memory,
    model_of,
    server_memory,
)
from afterwit.weights.weights import load_causal_lm
from tests.fakes.models import tiny_llama, tiny_qwen3

WIDE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512}
"""Wide enough that norms are a small part of the weights."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("wide"), **WIDE)


@pytest.fixture
def shape(folder: Path, tmp_path: Path) -> ModelShape:
    return model_of(str(folder), tmp_path).shape


def held(tensors: Iterable[Tensor]) -> int:
    """Bytes of all tensors, each storage once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def trained(folder: Path, settings: LearnerSettings) -> FullWeights | Adapter:
    if settings.lora_rank:
        return Adapter.load(folder, folder, settings)
    return FullWeights.load(folder, {}, settings)


@pytest.mark.parametrize("rank", [0, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_weights_gradient_and_moments_are_those_that_a_learner_holds(
    folder: Path, shape: ModelShape, rank: int, dtype: Any
) -> None:
    settings = LearnerSettings(lora_rank=rank, dtype=dtype, device="cpu", lr=1e-4)
    policy = trained(folder, settings)
    masters = list(policy.masters.named.values())
    optimizer = adamw(policy.masters, settings)
    for master in masters:
        master.grad = torch.zeros_like(master)
    optimizer.step()
    counted = learner_memory(shape, settings, tokens=1)
    kept = list(moments(optimizer, policy.masters).values())
    gradients = [master.grad for master in masters if master.grad is not None]
    assert counted["weights"] == pytest.approx(held([*policy.model.parameters(), *masters]), rel=0.02)
    assert counted["gradient and moments"] == pytest.approx(held([*gradients, *kept]), rel=0.02)


@pytest.mark.parametrize("rank", [0, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_mean_takes_what_it_is_counted_with(folder: Path, shape: ModelShape, rank: int, dtype: Any) -> None:
    settings = LearnerSettings(lora_rank=rank, dtype=dtype, device="cpu", teacher="ema")
    policy = trained(folder, settings)
    mean = Ema(policy.model, policy.initial_masters(folder), settings.ema_decay)
    own = {parameter.data_ptr() for parameter in policy.model.parameters()}
    beside = [each for each in (*mean.named.values(), *mean.model.parameters()) if each.data_ptr() not in own]
    counted = learner_memory(shape, settings, tokens=1)["teacher and reference"]
    assert counted == pytest.approx(held(beside), rel=0.02)


@pytest.mark.parametrize("made", [tiny_qwen3, tiny_llama])
def test_keys_and_values_take_the_counted_bytes_a_token(made: Any, tmp_path: Path) -> None:
    folder = made(tmp_path / "model")
    model = load_causal_lm(folder, torch.float32)
    with torch.no_grad():
        cache = model(torch.arange(7)[None], use_cache=True).past_key_values
    kept = held(tensor for layer in cache.layers for tensor in (layer.keys, layer.values))
    counted = server_memory(model_of(str(folder), tmp_path).shape, "float32", tokens=7)
    assert counted["keys and values"] == kept


def test_a_holds_base_full_weights_and_a_checkpoint_are_counted(shape: ModelShape) -> None:
    full = LearnerSettings(lora_rank=0)

    def beside(settings: LearnerSettings, **more: Any) -> int:
        return learner_memory(shape, settings, tokens=1, **more)["teacher and reference"]

    assert beside(full) == 0
    assert beside(full, holds_base=True) == 4 * shape.weights
    assert beside(LearnerSettings(), holds_base=True) == 0  # an adapter's base is in memory already
    assert beside(LearnerSettings(), others=[shape]) == 4 * shape.weights


def test_shards_divide_masters_gradient_and_moments_and_leave_the_ends_whole(shape: ModelShape) -> None:
    def counted(shards: int) -> dict[str, int]:
        settings = LearnerSettings(lora_rank=0, processes=shards, shards=shards, dtype="bfloat16")
        return learner_memory(shape, settings, tokens=1)

    two, four, head = counted(2), counted(4), 4 * shape.vocabulary * shape.hidden
    whole = 2 * (shape.ends + 2 * shape.layer)
    assert two["weights"] - whole == pytest.approx(2 * (four["weights"] - whole), abs=4)
    assert two["gradient and moments"] - head == pytest.approx(
        2 * (four["gradient and moments"] - head), abs=4
    )


@pytest.mark.parametrize("rank", [0, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_pass_keeps_about_what_is_counted_and_little_more(
    folder: Path, shape: ModelShape, rank: int, dtype: Any
) -> None:
    settings = LearnerSettings(lora_rank=rank, dtype=dtype, device="cpu")
    model = trained(folder, settings).model.train()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: list[Tensor] = []

    def save(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        states = model.get_decoder()(input_ids=torch.arange(256)[None], use_cache=False)
    assert states.last_hidden_state.requires_grad
    assert 0.65 < held(saved) / activations(shape, settings, 256) < 1.06


def test_checkpointing_keeps_one_layer_whole_and_the_inputs_of_the_others(shape: ModelShape) -> None:
    def largest(checkpointing: bool | None, tokens: int = 100_000) -> int:
        settings = LearnerSettings(checkpointing=checkpointing, micro_batch_tokens=1000)
        return learner_memory(shape, settings, tokens=tokens)["a pass or a step"]

    assert largest(True) < largest(False)
    assert largest(None) == max(largest(True), largest(False, 1000))
    assert largest(None, 1000) == largest(False, 1000)


def test_a_pass_holds_the_longest_turn_and_under_packing_others_beside_it(shape: ModelShape) -> None:
    settings = LearnerSettings(max_tokens=1000, micro_batch_tokens=100)
    assert largest_pass(shape, settings) == 1100
    assert largest_pass(shape, LearnerSettings(packing="off", max_tokens=10**6)) == 4096
    assert largest_pass(shape, LearnerSettings(max_tokens=10**6)) == shape.context + 4096


def test_on_a_small_machine_a_pass_has_the_tokens_whose_activations_take_a_quarter(shape: ModelShape) -> None:
    settings = LearnerSettings()
    each = activations(shape, settings, 1)
    assert fitting(shape, settings, 4000 * each).pass_tokens == 1000
    assert fitting(shape, settings, 10**6 * each).pass_tokens == settings.pass_tokens == 4096
    assert fitting(shape, LearnerSettings(micro_batch_tokens=5000), each).pass_tokens == 5000


def test_a_server_over_two_cards_has_half_the_model_on_each(shape: ModelShape) -> None:
    one = server_memory(shape, "bfloat16", tokens=10, adapters=5, rank=16)
    two = server_memory(shape, "bfloat16", tokens=10, over=2, adapters=5, rank=16)
    assert {what: 2 * size for what, size in two.items()} == one


def test_the_embedded_engine_keeps_a_request_or_what_it_is_given(shape: ModelShape) -> None:
    request = embedded_memory(shape, "float32", cache=0, tokens=10, rank=16)
    assert request["keys and values"] == 40 * shape.kept_per_token
    given = embedded_memory(shape, "float32", cache=10**9, tokens=10, rank=0)
    assert given["keys and values"] == 10**9
    assert given["live and staged weights"] == 2 * given["weights"]


def test_a_model_with_experts_or_without_a_field_is_refused() -> None:
    config = {"num_attention_heads": 2, "hidden_size": 4}
    with pytest.raises(ValueError, match="does not say num_hidden_layers"):
        ModelShape.of(config)
    with pytest.raises(ValueError, match="has experts"):
        ModelShape.of(config | {"num_experts": 8})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (None, "no model"),
        ("./nowhere", "there is no model at nowhere"),
        ("llama3:8b", "Ollama"),
    ],
)
def test_a_model_that_is_none_is_refused(name: str | None, said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=said):
        model_of(name, tmp_path)


def test_a_folder_whose_weights_are_of_another_kind_is_refused_with_both_numbers(
    folder: Path, shape: ModelShape, tmp_path: Path
) -> None:
    text = (folder / "config.json").read_text()
    (tmp_path / "config.json").write_text(
        text.replace('"intermediate_size": 512', '"intermediate_size": 600')
    )
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(SettingError, match=r"its files hold [\d,]+ weights, but .* has [\d,]+"):
        model_of(str(tmp_path), tmp_path)
    (tmp_path / "config.json").write_text(text.replace("float32", "float8_e4m3fn"))
    with pytest.raises(SettingError, match="its dtype is float8_e4m3fn"):
        model_of(str(tmp_path), tmp_path)
    (tmp_path / "config.json").write_text(text.replace("hidden_size", "width"))
    with pytest.raises(SettingError, match=r"cannot be counted from .*does not say hidden_size"):
        model_of(str(tmp_path), tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(SettingError, match=r"config.json cannot be read"):
        model_of(str(tmp_path), tmp_path)


def test_of_a_model_on_the_hub_the_configuration_is_enough(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "hub" / "models--owner--there"
    (kept / "snapshots" / "rev").mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("rev")
    (kept / "snapshots" / "rev" / "config.json").write_bytes((folder / "config.json").read_bytes())
    code = (
        "from pathlib import Path\nfrom afterwit.planning.memory import model_of\n"
        "found = model_of('owner/there', Path('none'))\nprint(found.shape.hidden, found.here)\n"
        "model_of('owner/away', Path('none'))"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ended.stdout.split() == ["256", "False"]
    assert "there is no folder owner/away here, and the hub did not return it" in ended.stderr
