"""A model in half precision computes as its weights would in float32, and is itself again afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learning.models import load_model
from afterwit.weights.weights import widened
from tests.fakes.models import tiny_llama, tiny_qwen3

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def logits(model: PreTrainedModel) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids=IDS, use_cache=False).logits
    return found


@pytest.mark.parametrize("make", [tiny_qwen3, tiny_llama])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_weights_say_what_they_say_in_float32(make: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    model = load_model(make(tmp_path), dtype=dtype, device=torch.device("cpu"))
    before, rounded = dict(model.named_parameters()), logits(model)
    wide = logits(widened(model))
    assert wide.dtype is torch.float32
    assert (rounded - wide).abs().max() > 1e-4
    assert {name: id(own) for name, own in model.named_parameters()} == {
        n: id(own) for n, own in before.items()
    }
    assert torch.equal(logits(model), rounded)
    torch.testing.assert_close(wide, logits(model.float()), rtol=1e-5, atol=1e-5)


def test_a_forward_that_fails_leaves_the_weights_as_they_were(tmp_path: Path) -> None:
    model = widened(load_model(tiny_llama(tmp_path), dtype=torch.bfloat16, device=torch.device("cpu")))
    exact = logits(model)

    def fail(*_: Any) -> None:
        raise RuntimeError("no")

    handle = model.model.layers[1].mlp.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no"):
        logits(model)
    handle.remove()
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert torch.equal(logits(model), exact)


def test_a_model_in_float32_stays_as_it_is(tmp_path: Path) -> None:
    model = load_model(tiny_llama(tmp_path), dtype=torch.float32, device=torch.device("cpu"))
    assert widened(model) is model
