"""A Hugging Face folder as a module that the engine can step, or a sentence on why it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from afterwit.core.errors import EngineError, SettingError
from afterwit.core.turn import Basis
from afterwit.engines.embedded.cache import SlotCache
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.embedded.support import REMEDY, context_of, refusal
from afterwit.engines.fingerprint import fingerprint
from afterwit.engines.port import Facts
from afterwit.weights.lora import adapted, lora_of, pairs_of


def read_config(folder: Path) -> PreTrainedConfig:
    """The folder's configuration; SettingError where there is none that transformers can read."""
    if not (folder / "config.json").is_file():
        raise SettingError(f"{folder} has no config.json: the model must be a Hugging Face folder.")
    try:
        return AutoConfig.from_pretrained(folder)
    except (ValueError, OSError, KeyError) as error:
        raise SettingError(f"transformers cannot read {folder / 'config.json'}: {error}") from error


def read_facts(folder: Path, config: PreTrainedConfig, settings: EmbeddedSettings) -> Facts:
    """What the engine will say of itself; SettingError where it cannot serve this model."""
    plain = config.get_text_config().to_dict()
    context_length = context_of(plain, settings.context_length)
    if reason := refusal(plain, context_length):
        raise SettingError(f"{folder} cannot be served by the embedded engine: {reason}")
    identity = fingerprint(folder)
    return Facts(
        name="embedded",
        model=folder.resolve().name,
        context_length=context_length,
        vocabulary=plain["vocab_size"],
        end_ids=end_ids(folder, plain.get("eos_token_id")),
        basis=Basis.PROCESSED,
        dtype=str(device_and_dtype(settings)[1]).removeprefix("torch."),
        fingerprint=identity,
    )


def end_ids(folder: Path, configured: int | list[int] | None) -> frozenset[int]:
    """The ids that end a turn: generation_config.json's (else config.json's), and the tokenizer's own."""
    named = _json(folder / "generation_config.json").get("eos_token_id")
    ids = configured if named is None else named
    return frozenset([ids] if isinstance(ids, int) else ids or ()) | _tokenizer_end(folder)


def _tokenizer_end(folder: Path) -> frozenset[int]:
    token = _json(folder / "tokenizer_config.json").get("eos_token")
    text = token.get("content") if isinstance(token, dict) else token
    if not text:
        return frozenset()
    path = folder / "tokenizer.json"
    try:
        number = Tokenizer.from_file(str(path)).token_to_id(text)
    except Exception as error:  # tokenizers raises nothing narrower
        raise SettingError(f"{path} cannot be read: {error}") from error
    return frozenset() if number is None else frozenset({number})


def _json(path: Path) -> dict[str, Any]:
    """The file's object, empty where there is no file. SettingError where it is not JSON."""
    try:
        data: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    except ValueError as error:
        raise SettingError(f"{path} is not JSON: {error}") from error
    return data


def device_and_dtype(settings: EmbeddedSettings) -> tuple[torch.device, torch.dtype]:
    """Device and dtype with `auto` resolved; SettingError where the device is not there."""
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
    """The folder's causal LM in evaluation mode, without gradients. EngineError where a weight is missing."""
    try:
        module, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="sdpa", output_loading_info=True, local_files_only=True
        )
    except Exception as error:
        raise EngineError(f"transformers cannot load {folder}: {error}") from error
    kinds = ("missing", "unexpected", "mismatched")
    wrong = [f"{kind}: {sorted(map(str, keys))[:3]}" for kind in kinds if (keys := report[f"{kind}_keys"])]
    if wrong:
        raise EngineError(f"The weights in {folder} are not those of its config.json ({'; '.join(wrong)}).")
    ready: nn.Module = module.to(device).eval().requires_grad_(False)
    return ready


def load_version(folder: Path, base: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A version's weights: whole ones from its folder, or the adapter there on `base`, which stays as it is.

    EngineError where they cannot be had.
    """
    try:
        lora = lora_of(folder)
        if lora is None:
            return load_module(folder, device, dtype)
        return adapted(base, pairs_of(folder), lora.scale)
    except (OSError, ValueError, SafetensorError) as error:
        raise EngineError(f"The adapter in {folder} does not fit the served model: {error}") from error


@torch.inference_mode()
def check_attention(module: nn.Module, vocabulary: int) -> None:
    """SettingError unless slots, chunks and a ragged batch give the logits of one plain forward.

    This is what finds an attention that `support.refusal` does not know by name.
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
    except Exception as error:
        raise SettingError(
            f"The model does not run with the embedded engine's slots: {error}. {REMEDY}"
        ) from error
    ours_BV, theirs_BV = torch.stack([read_V, *ragged_BV]), plain_TV[[8, 9, 3]]
    off = (ours_BV.float() - theirs_BV.float()).abs().max().item()
    most = (1e-3 if ours_BV.dtype == torch.float32 else 0.1) * max(1.0, theirs_BV.abs().max().item())
    if not off <= most:
        words = f"its logits from slots are off by {off:.3g}, at most {most:.3g} would do"
        raise SettingError(f"The model's attention is not one the embedded engine can do: {words}. {REMEDY}")
