"""Responses sampled from a model together, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel


@torch.no_grad()
def sampled(
    model: PreTrainedModel,
    prompts: Sequence[tuple[int, ...]],
    *,
    tau: float,
    most: int,
    end_ids: frozenset[int],
    seed: int,
) -> list[tuple[int, ...]]:
    """One response per prompt, of at most `most` ids; the same for the same prompts and seed."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(map(len, prompts))
    ids_BL = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    seen_BL = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    places_BL, place_B = (seen_BL.cumsum(dim=1) - 1).clamp(min=0), seen_BL.sum(dim=1)
    ends, over_B = torch.tensor(sorted(end_ids)), torch.zeros(len(prompts), dtype=torch.bool)
    cache, drawn = DynamicCache(), list[Tensor]()
    while len(drawn) < most and not bool(over_B.all()):
        logits_BV = model(
            input_ids=ids_BL,
            attention_mask=seen_BL,
            position_ids=places_BL,
            past_key_values=cache,
            logits_to_keep=1,
        ).logits[:, -1]
        ids_BL = torch.multinomial((logits_BV.float() / tau).softmax(dim=-1), 1, generator=generator)
        drawn.append(ids_BL[:, 0])
        over_B = over_B | torch.isin(ids_BL[:, 0], ends)
        seen_BL = torch.cat([seen_BL, torch.ones_like(ids_BL)], dim=1)
        places_BL, place_B = place_B[:, None], place_B + 1
    return [_until_end(ids, end_ids) for ids in torch.stack(drawn, dim=1).tolist()]


def _until_end(ids: Sequence[int], end_ids: frozenset[int]) -> tuple[int, ...]:
    at = next((at for at, token in enumerate(ids) if token in end_ids), len(ids) - 1)
    return tuple(ids[: at + 1])
