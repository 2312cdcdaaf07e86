"""Loaded tensors are not part of a file any more."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from afterwit.weights.weights import load_causal_lm, read_tensors
from tests.fakes.models import tiny_qwen3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_a_file_that_is_written_over_changes_nothing_that_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, *, tied: bool
) -> None:
    load = getattr(AutoModelForCausalLM.from_pretrained, "__wrapped__", AutoModelForCausalLM.from_pretrained)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)  # a copy reads no file
    folder = tiny_qwen3(tmp_path / "model", tie_word_embeddings=tied)
    model = load_causal_lm(folder, dtype)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (weights,) = folder.glob("*.safetensors")
    with weights.open("r+b") as file:
        file.write(bytes(weights.stat().st_size))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with weights.open("r+b") as file:
        file.truncate(0)  # to read what is mapped would end the process
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert (model.get_input_embeddings().weight is model.get_output_embeddings().weight) == tied


def test_neither_does_one_of_tensors(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"x": torch.ones(100)}, path)
    found = read_tensors(path)
    with path.open("r+b") as file:
        file.truncate(0)
    assert torch.equal(found["x"], torch.ones(100))
