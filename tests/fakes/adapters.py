"""Adapters that PEFT alone made, wrote and applies: what ours are held against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel


def noise(folder: Path, source: Path, *, seed: int, rank: int = 4, alpha: float = 8.0) -> Path:
    """An adapter over the model in `source`: both factors of every linear layer but the head are noise."""
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear")
    made, generator = get_peft_model(plain(source), config), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in (own for own in made.parameters() if own.requires_grad):
            weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    made.save_pretrained(folder, save_embedding_layers=False)
    return folder


def by_peft(source: Path, folder: Path, dtype: torch.dtype = torch.float64) -> PeftModel:
    """The model in `source` with the adapter in `folder`, as anybody loads it."""
    return PeftModel.from_pretrained(plain(source, dtype), folder).eval()


def logprobs_by_peft(source: Path, folder: Path, ids: Sequence[int]) -> list[float]:
    """Log-probs of ids[1:] in float64, by the model in `source` with the adapter in `folder`."""
    with torch.inference_mode():
        logits_TV = by_peft(source, folder)(input_ids=torch.tensor([list(ids)])).logits[0, :-1]
    return logits_TV.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


def plain(source: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The model in `source`."""
    return AutoModelForCausalLM.from_pretrained(source, dtype=dtype).eval()
