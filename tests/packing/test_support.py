"""Models that may run packed rows; all others are left as they were."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learning.models import load_model
from afterwit.packing.attention import NAME, unsupported_reason
from tests.fakes.models import tiny_llama, tiny_qwen3

WINDOWED = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
DYNAMIC = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}


def loaded(folder: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    return load_model(folder, dtype=dtype, device=torch.device("cpu"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("make", [tiny_qwen3, tiny_llama])
def test_models_with_full_attention_can(make: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    model = loaded(make(tmp_path), dtype)
    assert unsupported_reason(model) is None
    assert model.config._attn_implementation == NAME


@pytest.mark.parametrize(
    ("make", "config", "reason"),
    [(tiny_qwen3, WINDOWED, "sliding_attention"), (tiny_llama, DYNAMIC, "dynamic")],
)
def test_models_whose_layers_cannot_be_packed_are_named(
    make: Any, config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    model = loaded(make(tmp_path, **config))
    assert reason in (unsupported_reason(model) or "")
    assert model.config._attn_implementation == "sdpa"


def test_linear_attention_is_named(tmp_path: Path) -> None:
    model = loaded(tiny_llama(tmp_path))
    model.config.layer_types = ["full_attention", "linear_attention"]
    assert unsupported_reason(model) == "it has layers of linear_attention"


def test_a_model_in_which_neighbours_are_seen_is_found_out_by_its_logits(tmp_path: Path) -> None:
    """As with a convolution or a recurrence, which no field of the config shows."""
    model = loaded(tiny_llama(tmp_path))

    def leak(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (inputs[0] + inputs[0].roll(1, dims=1),)

    model.model.layers[0].mlp.register_forward_pre_hook(leak)
    assert "other logits" in (unsupported_reason(model) or "")
    assert model.config._attn_implementation == "sdpa"


def test_a_model_that_fails_on_packed_rows_is_left_as_it_was(tmp_path: Path) -> None:
    model = loaded(tiny_llama(tmp_path))

    def refuse(_: Any, inputs: Any, named: dict[str, Any]) -> None:
        if "tree" in named:
            raise TypeError("unexpected keyword argument 'tree'")

    model.model.layers[0].register_forward_pre_hook(refuse, with_kwargs=True)
    assert "unexpected keyword" in (unsupported_reason(model) or "")
    assert model.config._attn_implementation == "sdpa"
