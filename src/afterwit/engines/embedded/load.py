"""From a Hugging Face folder to a module that the engine can run; an error says why it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel

from afterwit.core.errors import EngineError, SettingError
from afterwit.engines.embedded import attention
from afterwit.engines.embedded.cache.slots import SlotCache
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.scheduling.pace import Pace
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.embedded.support import REMEDY
from afterwit.weights.load import load_causal_lm
from afterwit.weights.lora import adapted, lora_of, pairs_of

BESIDE_ON = {"cpu": 32}
"""`prefill_beside` = 0 by type of device. On two CPU cores a decode step cost as much as some 10 to 40 prompt
tokens. Not measured on a GPU, where one forward reads hundreds of tokens in about the time of one."""
BESIDE_ELSEWHERE = 512


def device_and_dtype(settings: EmbeddedSettings) -> tuple[torch.device, torch.dtype]:
    """Device and dtype with `auto` resolved. SettingError if the device is not there."""
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
    return device, getattr(torch, auto if settings.dtype == "auto" else settings.dtype)


def load_module(folder: Path, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The folder's causal LM in evaluation mode, without gradients. EngineError if it cannot be loaded."""
    try:
        model = load_causal_lm(folder, dtype)
    except SettingError as error:
        raise EngineError(str(error)) from error
    attend_in_slots(model)
    ready: nn.Module = model.to(device).eval().requires_grad_(False)
    return ready


def attend_in_slots(model: PreTrainedModel) -> None:
    """Set the model to our attention, if its attention can be replaced."""
    if getattr(model, "_supports_attention_backend", False):
        model.set_attn_implementation(attention.NAME)


def load_version(folder: Path, base: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A version's weights: whole ones from its folder, or the adapter there on `base`, which stays as it is.

    EngineError if they cannot be loaded.
    """
    try:
        lora = lora_of(folder)
        if lora is None:
            return load_module(folder, device, dtype)
        return adapted(base, pairs_of(folder), lora.scale)
    except (OSError, ValueError, SafetensorError) as error:
        raise EngineError(f"The adapter in {folder} does not fit the served model: {error}") from error


def pace_of(module: nn.Module, config: Any, settings: EmbeddedSettings, device: torch.device) -> Pace:
    """The limits on reading prompts; `config` is the text model's, `module` the model.

    A token costs one multiplication per weight, embedding tables aside, and two per attended position, layer
    and channel of the queries.
    """
    beside = settings.prefill_beside or BESIDE_ON.get(device.type, BESIDE_ELSEWHERE)
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
    return Pace(chunk=settings.prefill_chunk, beside=beside, attention_span=span)


@torch.inference_mode()
def check_attention(module: nn.Module, vocabulary: int) -> None:
    """SettingError unless slots, chunks and a ragged batch give the logits of one plain forward.

    This finds an attention that `support.refusal` does not know by name.
    """
    device = next(module.parameters()).device
    ids = [(7 * place + 3) % vocabulary for place in range(12)]
    try:
        plain_TV = module(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0]
        cache = SlotCache(slots=2, context_length=len(ids))
        prefill(module, cache, 0, ids[:5], 0)
        read_V = prefill(module, cache, 0, ids[5:9], 5)[-1]
        prefill(module, cache, 1, ids[:3], 0)
        ragged_BV = decode(module, cache, 0, [ids[9], ids[3]], [9, 3])
    except Exception as error:  # a model is foreign code and may raise anything
        raise SettingError(
            f"The model does not run with the embedded engine's slots: {error}. {REMEDY}"
        ) from error
    ours_BV, theirs_BV = torch.stack([read_V, *ragged_BV]), plain_TV[[8, 9, 3]]
    off = (ours_BV.float() - theirs_BV.float()).abs().max().item()
    most = (1e-3 if ours_BV.dtype == torch.float32 else 0.1) * max(1.0, theirs_BV.abs().max().item())
    if not off <= most:
        words = f"its logits from slots are off by {off:.3g}, at most {most:.3g} would do"
        raise SettingError(f"The model's attention is not one the embedded engine can do: {words}. {REMEDY}")
