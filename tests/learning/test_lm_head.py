"""The head taken out of a model, and updates with it against updates by whole logits."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Gemma2Config, GraniteConfig, PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.fused_head.head import HeadGradients
from afterwit.learning.score import Row, fused_head, head_of, response_logits, response_states, stream_states
from afterwit.objective.settings import ObjectiveSettings
from tests.fakes.models import reweighted, tiny_llama
from tests.fakes.renderers import renderer_of
from tests.learning.test_update import BY_TERM, batch
from tests.learning.updates import EXACT, frozen, furthest, moved, policy_of
from tests.products import some

ROWS = [
    Row(prompt=(5, 6, 7), response=(1, 2, 3, 4)),
    Row(prompt=(8,), response=(9,)),
    Row(prompt=(3, 2), response=(1, 5)),
]
SHAPE = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.5,
}


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama, whose head is a matrix of its own."""
    return tiny_llama(tmp_path_factory.mktemp("llama"))


@cache
def student_of(folder: Path) -> Path:
    """A policy that has moved away from this base."""
    return reweighted(folder.with_name(f"{folder.name} moved"), folder, seed=3)


@pytest.mark.parametrize("objective", some(2, BY_TERM[8:]))
@pytest.mark.parametrize(
    "tied", [pytest.param(True, id="tied", marks=pytest.mark.slow), pytest.param(False, id="untied")]
)
def test_an_update_is_that_of_whole_logits(
    objective: ObjectiveSettings, tied: bool, base: Path, untied: Path
) -> None:
    folder = base if tied else untied
    student = student_of(folder)
    items = batch(renderer_of(folder), objective)
    settings = replace(EXACT, epochs=2, micro_batch_tokens=60, packing="off")
    plain, of_plain = moved(student, folder, items, objective, replace(settings, loss_backend="plain"))
    fused, of_fused = moved(student, folder, items, objective, replace(settings, loss_backend="fused"))
    assert of_fused == pytest.approx(of_plain, rel=1e-9, abs=1e-12)
    # AdamW's first steps are nearly the gradient's sign, which magnifies rounding where it is nearly 0.
    assert furthest(fused, plain) < 1e-7


@pytest.mark.parametrize("objective", BY_TERM)
def test_with_packed_rows_the_fused_head_agrees_with_the_plain_way(
    objective: ObjectiveSettings, base: Path
) -> None:
    """To fp32's rounding: the model's norms compute in it."""
    student = student_of(base)
    items = batch(renderer_of(base), objective)
    simple = replace(EXACT, loss_backend="plain", packing="off")
    _, plainly = moved(student, base, items, objective, simple)
    _, packed = moved(student, base, items, objective, EXACT)
    assert packed == pytest.approx(plainly, rel=1e-5, abs=1e-6)


def test_under_bfloat16_the_heads_gradient_goes_to_the_masters(base: Path, renderer: Renderer) -> None:
    objective = ObjectiveSettings()
    items = batch(renderer, objective)
    norms = [
        moved(base, base, items, objective, replace(EXACT, dtype=dtype, loss_backend=head))[1]["grad_norm"]
        for dtype, head in (("float32", "plain"), ("bfloat16", "fused"), ("bfloat16", "plain"))
    ]
    assert norms[1] == pytest.approx(norms[0], rel=0.05)
    assert norms[1] == pytest.approx(norms[2], rel=0.05)


def test_states_are_what_the_head_makes_logits_of(base: Path) -> None:
    model = frozen(base)
    logits_NV = torch.cat(response_logits(model, ROWS))
    states_ND = response_states(model, ROWS)
    assert torch.equal(model.lm_head(states_ND), logits_NV)
    streamed = list(stream_states(model, ROWS, 1))
    assert [len(states_TD) for states_TD in streamed] == [4, 1, 2]
    torch.testing.assert_close(torch.cat(streamed), states_ND, rtol=0, atol=1e-12)


def test_a_soft_capped_head_is_fused() -> None:
    model = of(Gemma2Config(**SHAPE, head_dim=16, final_logit_softcapping=5.0))
    head = fused_head(model)
    assert head is not None
    assert head.soft_cap == 5.0
    with torch.no_grad():
        ours = head.logits(response_states(model, ROWS), head.buffer(7))
        torch.testing.assert_close(ours, torch.cat(response_logits(model, ROWS)), rtol=0, atol=1e-12)


@pytest.fixture(params=["tied", "untied"])
def adapted(request: pytest.FixtureRequest, base: Path, untied: Path) -> PreTrainedModel:
    """A model with two adapters on its head, `one` switched on, neither of them zero."""
    model = frozen(base if request.param == "tied" else untied)
    config = {"r": 3, "lora_alpha": 6.0, "target_modules": ["lm_head", "q_proj"]}
    peft = get_peft_model(model, LoraConfig(**config), adapter_name="one")
    peft.add_adapter("two", LoraConfig(**config))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in peft.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    return peft.get_base_model()


def test_lora_on_the_head_is_fused(adapted: PreTrainedModel) -> None:
    """Logits, and the gradients of states and factors; the weight, tied to the embedding or not, stays."""
    head = fused_head(adapted)
    assert head is not None
    assert head.low_rank is not None
    logits_NV = torch.cat(response_logits(adapted, ROWS))
    grad_logits_NV = torch.randn(
        logits_NV.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    states_ND = response_states(adapted, ROWS)
    factors = head.low_rank.down_RD, head.low_rank.up_VR
    layer = adapted.get_output_embeddings()
    expected = torch.autograd.grad((layer(states_ND) * grad_logits_NV).sum(), (states_ND, *factors))
    with torch.no_grad():
        found = HeadGradients(down_RD=torch.zeros_like(factors[0]), up_VR=torch.zeros_like(factors[1]))
        grad_states_ND = head.backward(grad_logits_NV, states_ND, found)
        torch.testing.assert_close(head.logits(states_ND, head.buffer(7)), logits_NV, rtol=0, atol=1e-12)
    for mine, theirs in zip((grad_states_ND, found.down_RD, found.up_VR), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)


def test_lora_that_is_switched_off_leaves_the_plain_head(adapted: PreTrainedModel) -> None:
    layer = adapted.get_output_embeddings()
    with_one = head_of(adapted)
    layer.enable_adapters(False)
    plain = head_of(adapted)
    assert plain.low_rank is None
    assert plain.weight_VD is with_one.weight_VD is layer.base_layer.weight
    logits_NV = torch.cat(response_logits(adapted, ROWS))
    with torch.no_grad():
        ours_NV = plain.logits(response_states(adapted, ROWS), plain.buffer(7))
    torch.testing.assert_close(ours_NV, logits_NV, rtol=0, atol=1e-12)


def test_the_adapter_that_is_switched_on_is_the_one_that_counts(adapted: PreTrainedModel) -> None:
    layer = adapted.get_output_embeddings()
    layer.set_adapter("two")
    head = head_of(adapted)
    assert head.low_rank is not None
    assert head.low_rank.up_VR is layer.lora_B["two"].weight


def test_lora_that_is_more_than_two_factors_goes_the_plain_way(adapted: PreTrainedModel) -> None:
    layer = adapted.get_output_embeddings()
    layer.set_adapter(["one", "two"])
    with pytest.raises(ValueError, match="several adapters at once: one, two"):
        head_of(adapted)
    layer.set_adapter("one")
    layer.lora_dropout["one"] = torch.nn.Dropout(0.1)
    with pytest.raises(ValueError, match="more than two factors and a scale"):
        head_of(adapted)
    layer.lora_dropout["one"] = torch.nn.Identity()
    layer.merge()
    with pytest.raises(ValueError, match="merged into the head: one"):
        head_of(adapted)


def test_a_model_that_does_more_to_its_logits_goes_the_plain_way_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert fused_head(of(GraniteConfig(**SHAPE, logits_scaling=8.0))) is None
    assert "learner.loss_backend is plain" in caplog.text
    assert "not those of its head" in caplog.text


def test_a_head_that_is_not_a_linear_layer_is_not_fused(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = frozen(base)
    model.lm_head = torch.nn.Sequential(model.lm_head)
    assert fused_head(model) is None
    assert "the head is a Sequential, not a Linear" in caplog.text


def test_the_setting_decides(base: Path) -> None:
    assert policy_of(base, replace(EXACT, loss_backend="plain")).head is None
    assert policy_of(base, replace(EXACT, loss_backend="fused")).head is not None


def test_a_frozen_head_gets_no_gradient(base: Path, renderer: Renderer) -> None:
    policy = policy_of(base)
    assert policy.head is not None
    assert policy.masters.gradient(policy.head.weight_VD) is not None
    policy.model.requires_grad_(False)
    assert policy.masters.gradient(policy.head.weight_VD) is None
    assert policy.masters.gradient(None) is None


def of(config: object) -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
    return model
