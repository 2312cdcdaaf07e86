"""The engine's three forwards over any causal LM of transformers: read a text on, extend rows, score.

The model's own code runs unchanged. It is given a `Row` or a `Batch` and a 4-D additive mask, which
transformers passes on to the attention. Axes: B rows, Q new positions, L positions attended to, V vocabulary,
T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from afterwit.engines.embedded.cache.batch import Batch, Beginning
from afterwit.engines.embedded.cache.row import Row


def prefill(module: nn.Module, row: Row, ids: Sequence[int], *, keep: int = 1) -> Tensor:
    """Read `ids` behind those that the row holds. Logits of the last `keep` positions (0: all), [keep, V]."""
    device, dtype = _where(module)
    start = len(row.ids)
    end = start + len(ids)
    row.aim(len(ids))
    mask_QL = torch.full((len(ids), end), -torch.inf, dtype=dtype, device=device).triu(start + 1)
    logits_1QV: Tensor = module(
        input_ids=torch.tensor([list(ids)], device=device),
        position_ids=torch.arange(start, end, device=device)[None],
        attention_mask=mask_QL[None, None],
        past_key_values=row,
        use_cache=True,
        logits_to_keep=keep,
    ).logits
    row.ids.extend(ids)
    return logits_1QV[0]


def decode(
    module: nn.Module,
    batch: Batch,
    first: int,
    ids: Sequence[int],
    positions: Sequence[int],
    beginnings: Sequence[Beginning | None] = (),
) -> Tensor:
    """Extend row first + i by ids[i] at positions[i]. Each row's next-token logits, [B, V].

    A row that has a beginning holds the positions behind it only.
    """
    device, dtype = _where(module)
    beyond_BL = batch.aim(first, positions, beginnings or [None] * len(ids), device)
    mask_BL = torch.zeros(beyond_BL.shape, dtype=dtype, device=device).masked_fill_(beyond_BL, -torch.inf)
    elsewhere = {"batch": batch} if batch.shared else {}
    logits_B1V: Tensor = module(
        input_ids=torch.tensor(ids, device=device)[:, None],
        position_ids=torch.tensor(positions, device=device)[:, None],
        attention_mask=mask_BL[:, None, None],
        past_key_values=batch,
        use_cache=True,
        logits_to_keep=1,
        **elsewhere,
    ).logits
    return logits_B1V[:, -1]


@torch.inference_mode()
def score(module: nn.Module, ids: Sequence[int], *, chunk: int = 256) -> list[float]:
    """Log-probs at temperature 1 of ids[1:], [T - 1], by the code that serves: a row in pieces."""
    row = Row(context_length=len(ids), coming=len(ids))
    scored: list[float] = []
    for start in range(0, len(ids) - 1, chunk):
        part = ids[start : min(start + chunk, len(ids) - 1)]
        logprobs_QV = prefill(module, row, part, keep=0).float().log_softmax(-1)
        targets_Q = torch.tensor(ids[start + 1 : start + 1 + len(part)], device=logprobs_QV.device)
        scored += logprobs_QV.gather(-1, targets_Q[:, None])[:, 0].tolist()
    return scored


def _where(module: nn.Module) -> tuple[torch.device, torch.dtype]:
    weight = next(module.parameters())
    return weight.device, weight.dtype
