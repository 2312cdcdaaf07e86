"""Which models the embedded engine refuses by their configuration, before any weight is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LINEAR = ("linear_attention", "mamba", "recurrent", "conv")
STATE_SPACE = ("mamba", "rwkv", "xlstm", "recurrent_gemma", "jamba", "bamba", "zamba")
WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
REMEDY = (
    "Serve a model with standard attention (Qwen3, Llama, Qwen2, SmolLM, ...), or let a server of its own "
    'serve this one (engine.kind = "vllm").'
)


def context_of(config: Mapping[str, Any], asked: int, most: int = 32768) -> int:
    """The context length to serve: `asked`, or if that is 0, the model's own, at most `most`."""
    own = config.get("max_position_embeddings") or config.get("n_positions") or most
    return asked or min(own, most)


def refusal(config: Mapping[str, Any], context: int) -> str | None:
    """Why this model cannot be served with this context length, and what to do; None if it can."""
    kind = config.get("model_type", "unknown")
    if config.get("is_encoder_decoder"):
        return f"{kind} is an encoder-decoder model. {REMEDY}"
    layers = config.get("layer_types") or ()
    linear = next((layer for layer in layers if layer.startswith(LINEAR)), None)
    if linear or kind.startswith(STATE_SPACE):
        return f"{kind} uses {linear or 'a recurrent state'}, which has no keys and values. {REMEDY}"
    if config.get("alibi") or config.get("position_embedding_type") in ("alibi", "relative_key"):
        return f"{kind} adds positions inside its attention (ALiBi). {REMEDY}"
    return _longer_than_model(config, context) or _windowed(config, context)


def _longer_than_model(config: Mapping[str, Any], context: int) -> str | None:
    own = config.get("max_position_embeddings") or config.get("n_positions") or context
    if context <= own:
        return None
    return f"context_length is {context}, but the model was made for {own}. Set it to at most {own}."


def _windowed(config: Mapping[str, Any], context: int) -> str | None:
    """A window or chunk that is as long as the context is standard attention."""
    window = min(_windows(config), default=context)
    if context <= window:
        return None
    return (
        f"{config.get('model_type')} looks back {window} tokens only (sliding-window attention), but the "
        f"context is {context}. Set context_length to at most {window}. {REMEDY}"
    )


def _windows(config: Mapping[str, Any]) -> list[int]:
    """How far back the layers look that do not see the whole context."""
    sizes = {layer: config.get(name) for layer, name in WINDOWS.items()}
    if layers := config.get("layer_types"):
        return [size for layer in layers if (size := sizes.get(layer))]
    window = sizes["sliding_attention"]
    return [window] if window and config.get("use_sliding_window", True) else []
