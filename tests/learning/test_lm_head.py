"""The head taken out of a model, and updates with it against updates by whole logits."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GraniteConfig, PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.learning.passes import Row, fused_head, response_logits, response_states, stream_states
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
