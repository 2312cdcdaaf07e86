"""Random models to measure on."""

from __future__ import annotations

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3Config

from benchmarks.asked import Shape

CONTEXT = 65_536


def qwen3(
    shape: Shape, *, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0
) -> PreTrainedModel:
    """A random Qwen3 with tied embeddings, ready to be evaluated.

    In float64 its norms are torch's, as Hugging Face's work in fp32.
    """
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    with torch.device(device):
        made = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
    if dtype is torch.float64:
        for parent in list(made.modules()):
            for name, child in list(parent.named_children()):
                if type(child).__name__ == "Qwen3RMSNorm":
                    setattr(parent, name, nn.RMSNorm(len(child.weight), eps=child.variance_epsilon))
    return made.to(dtype)
