"""The engine's three forwards over any causal LM of transformers: read a prompt, extend rows, score.

The model's own code runs unchanged. It is given a `SlotCache` and a 4-D additive mask, which transformers
passes on to the attention. Axes: B rows, Q new positions, L positions attended to, V vocabulary, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from afterwit.engines.embedded.cache.slots import Chunk, Ragged, SlotCache


def prefill(
    module: nn.Module, cache: SlotCache, row: int, ids: Sequence[int], start: int, *, keep: int = 1
) -> Tensor:
    """Read `ids` as positions start.. of `row`. Logits of the last `keep` positions (0: all), [keep, V]."""
    device, dtype = _where(module)
    end = start + len(ids)
    cache.aim(Chunk(row=row, start=start, end=end))
    mask_QL = torch.full((len(ids), end), -torch.inf, dtype=dtype, device=device).triu(start + 1)
    logits_1QV: Tensor = module(
        input_ids=torch.tensor([ids], device=device),
        position_ids=torch.arange(start, end, device=device)[None],
        attention_mask=mask_QL[None, None],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=keep,
    ).logits
    return logits_1QV[0]


def decode(
    module: nn.Module, cache: SlotCache, first: int, ids: Sequence[int], positions: Sequence[int]
) -> Tensor:
    """Extend row first + i by ids[i] at positions[i]. Each row's next-token logits, [B, V]."""
    device, dtype = _where(module)
    length = max(positions) + 1
    positions_B = torch.tensor(positions, device=device)
    rows_B = torch.arange(first, first + len(ids), device=device)
    cache.aim(Ragged(first=first, rows_B=rows_B, positions_B=positions_B, length=length))
    beyond_BL = torch.arange(length, device=device) > positions_B[:, None]
    mask_BL = torch.zeros(len(ids), length, dtype=dtype, device=device).masked_fill_(beyond_BL, -torch.inf)
    logits_B1V: Tensor = module(
        input_ids=torch.tensor(ids, device=device)[:, None],
        position_ids=positions_B[:, None],
        attention_mask=mask_BL[:, None, None],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits
    return logits_B1V[:, -1]


@torch.inference_mode()
def score(module: nn.Module, ids: Sequence[int], *, chunk: int = 256) -> list[float]:
    """Log-probs at temperature 1 of ids[1:], [T - 1], by the code that serves: chunks into a slot."""
    cache = SlotCache(slots=1, context_length=len(ids))
    scored: list[float] = []
    for start in range(0, len(ids) - 1, chunk):
        part = ids[start : min(start + chunk, len(ids) - 1)]
        logprobs_QV = prefill(module, cache, 0, part, start, keep=0).float().log_softmax(-1)
        targets_Q = torch.tensor(ids[start + 1 : start + 1 + len(part)], device=logprobs_QV.device)
        scored += logprobs_QV.gather(-1, targets_Q[:, None])[:, 0].tolist()
    return scored


def _where(module: nn.Module) -> tuple[torch.device, torch.dtype]:
    weight = next(module.parameters())
    return weight.device, weight.dtype
