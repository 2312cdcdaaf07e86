"""From a Hugging Face folder to a module that the engine can run; an error says why it cannot."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedModel

from afterwit.engines.embedded import forward as attention
from afterwit.engines.embedded.cache import Batch, Beginning, Row
from afterwit.engines.embedded.decoding import Pace
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.errors import EngineError, SettingError
from afterwit.weights.load import load_causal_lm
from afterwit.weights.lora import adapted, lora_of, pairs_of
from afterwit.weights.rows import Factors, RowAdapters

log = logging.getLogger(__name__)
BESIDE_ON = {"cpu": 32}
"""`prefill_beside` = 0 by type of device. On two CPU cores a decode step cost as much as some 10 to 40 prompt
tokens. Not measured on a GPU, where one forward reads hundreds of tokens in about the time of one."""

BESIDE_ELSEWHERE = 512


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


def load_version(
    folder: Path, base: nn.Module, root: Path, device: torch.device, dtype: torch.dtype
) -> nn.Module:
    """A version's weights: whole ones from its folder, or the adapter there on `base`, which stays as it is
    and is the version itself if the folder is its own, `root`.

    EngineError if they cannot be loaded.
    """
    if folder.resolve() == root.resolve():
        return base
    try:
        lora = lora_of(folder)
        if lora is None:
            return load_module(folder, device, dtype)
        return adapted(base, pairs_of(folder), lora.scale)
    except (OSError, ValueError, SafetensorError) as error:
        raise EngineError(f"The adapter in {folder} does not fit the served model: {error}") from error


def load_own(folder: Path, rows: RowAdapters, base: Path) -> Factors | None:
    """The adapter in a folder as one of several over a model; None if the folder is that of the base.

    EngineError if it cannot be loaded.
    """
    if folder.resolve() == base.resolve():
        return None
    try:
        lora = lora_of(folder)
        if lora is None:
            raise EngineError(f"{folder} holds no adapter: only adapters can be of somebody's own")
        return rows.fitted(pairs_of(folder), lora.scale)
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


PLACES = (8, 9, 3)
"""Positions of the checked text whose logits are compared."""


@torch.inference_mode()
def check_attention(module: nn.Module, vocabulary: int) -> None:
    """SettingError unless pieces and a ragged batch give the logits of one plain forward.

    This finds an attention that `support.refusal` does not know by name.
    """
    try:
        ours_BV, theirs_BV = _compared(module, vocabulary, in_place=False)
    except Exception as error:  # a model is foreign code and may raise anything
        raise SettingError(
            f"The model does not run with the embedded engine's slots: {error}. {REMEDY}"
        ) from error
    off, most = _off(ours_BV, theirs_BV)
    if not off <= most:
        words = f"its logits from slots are off by {off:.3g}, at most {most:.3g} would do"
        raise SettingError(f"The model's attention is not one the embedded engine can do: {words}. {REMEDY}")


@torch.inference_mode()
def reads_in_place(module: nn.Module, vocabulary: int) -> bool:
    """Whether responses can attend to the beginning of their text where it is, and so share it.

    If not, each gets a copy of it: that takes memory, and nothing else.
    """
    try:
        off, most = _off(*_compared(module, vocabulary, in_place=True))
    except Exception as error:  # a model is foreign code and may raise anything
        log.info("long prompts are copied for each response: %s", error)
        return False
    if not off <= most:
        log.info("long prompts are copied for each response: in place, logits are off by %.3g", off)
    return off <= most


def _compared(module: nn.Module, vocabulary: int, *, in_place: bool) -> tuple[Tensor, Tensor]:
    """Logits at `PLACES` from a row that is read in pieces and a ragged batch, and from one plain forward."""
    device = next(module.parameters()).device
    ids = [(7 * place + 3) % vocabulary for place in range(12)]
    plain_TV = module(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0]
    long, short = (Row(context_length=len(ids)) for _ in range(2))
    prefill(module, long, ids[:5])
    read_V = prefill(module, long, ids[5:9])[-1]
    prefill(module, short, ids[:3])
    beginning = Beginning(long, 8) if in_place else None
    batch = Batch(slots=2, context_length=len(ids))
    batch.put(0, long.layers_between(beginning.length if beginning else 0, 9))
    batch.put(1, short.layers_between(0, 3))
    ragged_BV = decode(module, batch, 0, [ids[9], ids[3]], [9, 3], [beginning, None])
    return torch.stack([read_V, *ragged_BV]), plain_TV[list(PLACES)]


def _off(ours_BV: Tensor, theirs_BV: Tensor) -> tuple[float, float]:
    """How far logits are apart at most, and how far they may be."""
    off = (ours_BV.float() - theirs_BV.float()).abs().max().item()
    most = (1e-3 if ours_BV.dtype == torch.float32 else 0.1) * max(1.0, theirs_BV.abs().max().item())
    return off, most


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
