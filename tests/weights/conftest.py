"""Small models of three families: with tied and untied heads, and with layers that are no `nn.Linear`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config

from tests.fakes.models import tiny_llama, tiny_qwen3


@pytest.fixture(scope="session", params=["qwen3", "llama", "gpt2"])
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each family's folder in turn."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "gpt2":
        torch.manual_seed(0)
        config = GPT2Config(vocab_size=300, n_positions=64, n_embd=24, n_layer=2, n_head=2)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        return folder
    return tiny_qwen3(folder) if request.param == "qwen3" else tiny_llama(folder)
