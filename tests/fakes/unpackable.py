"""Small random models whose rows cannot be packed: windows, sinks, linear attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    PreTrainedModel,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
)

VOCABULARY = 500
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW: dict[str, Any] = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
LINEAR: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
TOWER: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def _gemma3() -> PreTrainedModel:
    return Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, **WINDOW, query_pre_attn_scalar=8))


def _gemma3_with_images() -> PreTrainedModel:
    text = {**SHAPE, **WINDOW, "query_pre_attn_scalar": 8}
    ids = {"image_token_index": 499, "boi_token_index": 498, "eoi_token_index": 497}
    config = Gemma3Config(text_config=text, vision_config=TOWER, mm_tokens_per_image=4, **ids)
    return Gemma3ForConditionalGeneration(config)


def _gpt_oss() -> PreTrainedModel:
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 512}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    return GptOssForCausalLM(GptOssConfig(**SHAPE, **WINDOW, **experts, rope_parameters=yarn))


def _qwen3_5_with_images() -> PreTrainedModel:
    tower = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    places = {"num_position_embeddings": 16, "patch_size": 4}
    return Qwen3_5ForConditionalGeneration(
        Qwen3_5Config(text_config={**SHAPE, **LINEAR}, vision_config={**tower, **places})
    )


UNPACKABLE: dict[str, tuple[Callable[[], PreTrainedModel], str]] = {
    "gemma3": (_gemma3, "sliding_attention"),
    "gemma3 with images": (_gemma3_with_images, "sliding_attention"),
    "gpt_oss": (_gpt_oss, "sliding_attention"),
    "qwen3_5 with images": (_qwen3_5_with_images, "linear_attention"),
}
"""How each is made, and the layers that keep its rows from being packed."""


def tiny_unpackable(folder: Path, name: str, *, seed: int = 0) -> Path:
    """The model's configuration and weights in `folder`, without a tokenizer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = UNPACKABLE[name][0]()
    model.save_pretrained(folder)
    return folder
