"""Whether a model can be served here, on which device, in which precision, and with which limits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from afterwit.engines.embedded.cache import Batch, Beginning, Row
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.runner import PrefillBudget
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.errors import SettingError

PER_STEP = {"cpu": 32}
"""`prefill_beside` = 0 by type of device. On two CPU cores a decode step cost as much as some 10 to 40 prompt
tokens. Not measured on a GPU, where one forward reads hundreds of tokens in about the time of one."""
PER_STEP_ELSEWHERE = 512
POSITIONS = (8, 9, 3)
"""Positions of the checked text whose logits are compared."""
LINEAR = ("linear_attention", "mamba", "recurrent", "conv")
STATE_SPACE = ("mamba", "rwkv", "xlstm", "recurrent_gemma", "jamba", "bamba", "zamba")
WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
REMEDY = (
    "Serve a model with standard attention (Qwen3, Llama, Qwen2, SmolLM, ...), or let a server of its own "
    'serve this one (engine.kind = "vllm").'
)

log = logging.getLogger(__name__)


def device_and_dtype(settings: EmbeddedSettings) -> tuple[torch.device, torch.dtype]:
    """Device and dtype with `auto` resolved. SettingError if torch cannot use them here."""
    name = settings.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise SettingError(
            f"engine.device is {settings.device!r}, which torch cannot use here: {error}"
        ) from error
    auto = "float32" if device.type == "cpu" else "bfloat16"
    dtype: torch.dtype = getattr(torch, auto if settings.dtype == "auto" else settings.dtype)
    try:
        torch.zeros(1, device=device, dtype=dtype)
    except (RuntimeError, TypeError) as error:  # macOS before 14 has no bfloat16
        raise SettingError(
            f"{device.type} cannot compute in {dtype} here: set engine.dtype to float16 or float32 ({error})"
        ) from error
    return device, dtype


def prefill_budget(
    module: nn.Module, config: Any, settings: EmbeddedSettings, device: torch.device
) -> PrefillBudget:
    """The limits on reading prompts; `config` is the text model's.

    A token costs one multiplication per weight, embedding tables aside, and two per attended position, layer
    and channel of the queries.
    """
    per_step = settings.prefill_beside or PER_STEP.get(device.type, PER_STEP_ELSEWHERE)
    weights = sum(
        weight.numel()
        for layer in module.modules()
        if not isinstance(layer, nn.Embedding)
        for weight in layer.parameters(recurse=False)
    )
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    span = weights / (2 * config.num_hidden_layers * width)
    return PrefillBudget(chunk=settings.prefill_chunk, per_step=per_step, attention_span=span)


def check_attention(module: nn.Module, vocabulary: int) -> bool:
    """SettingError unless pieces and a ragged batch give the logits of one plain forward.

    This finds attention that `refusal` does not know by name. Returns whether responses can attend to the
    beginning of their text in its row, and so share it; else each gets a copy, which only takes memory.
    """
    in_place = _attention_fault(module, vocabulary, in_place=True)
    if in_place is None:  # the ragged batch has a row of each kind
        return True
    if fault := _attention_fault(module, vocabulary, in_place=False):
        raise SettingError(f"The model's attention is not one the embedded engine can do: {fault}. {REMEDY}")
    log.info("long prompts are copied for each response: %s", in_place)
    return False


@torch.inference_mode()
def _attention_fault(module: nn.Module, vocabulary: int, *, in_place: bool) -> str | None:
    """How a row read in pieces and a ragged batch differ from a plain forward, in logits at `POSITIONS`."""
    device = next(module.parameters()).device
    ids = [(7 * place + 3) % vocabulary for place in range(12)]
    try:
        plain_TV: Tensor = module(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0]
        long, short = (Row(context_length=len(ids)) for _ in range(2))
        prefill(module, long, ids[:5])
        read_V = prefill(module, long, ids[5:9])[-1]
        prefill(module, short, ids[:3])
        beginning = Beginning(long, 8) if in_place else None
        batch = Batch(slots=2, context_length=len(ids))
        batch.put(0, long.layers_between(8 if in_place else 0, 9))
        batch.put(1, short.layers_between(0, 3))
        ragged_BV = decode(module, batch, 0, [ids[9], ids[3]], [9, 3], [beginning, None])
    except Exception as error:  # a model is foreign code and may raise anything
        return f"it does not run with the engine's slots ({error})"
    ours_BV, theirs_BV = torch.stack([read_V, *ragged_BV]), plain_TV[list(POSITIONS)]
    off = (ours_BV.float() - theirs_BV.float()).abs().max().item()
    most = (1e-3 if ours_BV.dtype == torch.float32 else 0.1) * max(1.0, theirs_BV.abs().max().item())
    if off <= most:
        return None
    return f"its logits from slots are off by {off:.3g}, at most {most:.3g} would do"


def context_of(config: Mapping[str, Any], asked: int) -> int:
    """The context length to serve: `asked`, or if that is 0, the model's own, at most 32,768."""
    own = config.get("max_position_embeddings") or config.get("n_positions") or 32768
    return asked or min(own, 32768)


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
    own = config.get("max_position_embeddings") or config.get("n_positions") or context
    if context > own:
        return f"context_length is {context}, but the model was made for {own}. Set it to at most {own}."
    used = layers or (["sliding_attention"] if config.get("use_sliding_window", True) else [])
    reaches = [config.get(WINDOWS[layer]) for layer in used if layer in WINDOWS]
    window = min(filter(None, reaches), default=context)
    if context > window:  # as long as the context, a window is standard attention
        return (
            f"{kind} looks back {window} tokens only (sliding-window attention), but the context is "
            f"{context}. Set context_length to at most {window}. {REMEDY}"
        )
    return None
