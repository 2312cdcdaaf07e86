"""Exact top-K in two stages: the K best blocks of ids by their largest logit, then the best ids in those.

Order is by logit, equal logits by the lower id, as in `objective.logprobs.top_k`. An id of a block left out
has K better ones: each chosen block's largest logit is above it, or equal to it at a lower id.
"""

from __future__ import annotations

import torch
from torch import Tensor

from afterwit.objective.logprobs import top_k

BLOCK = 128
"""Ids of a block; about the square root of V / K costs least, and this is near it from 32,000 ids on."""


def two_stage_top_k(logits_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Ids [N, min(k, V)] of the largest logits, and the largest logit of each row [N, 1]."""
    maxima_NB = _maxima(logits_NV)
    peak_N1 = maxima_NB.amax(dim=-1, keepdim=True)
    if k >= maxima_NB.shape[-1]:
        return _best(logits_NV, k), peak_N1
    blocks_NK = _best(maxima_NB, k).sort(dim=-1).values
    ids_NC = (blocks_NK[:, :, None] * BLOCK + torch.arange(BLOCK, device=logits_NV.device)).flatten(1)
    beyond_NC = ids_NC >= logits_NV.shape[-1]
    found_NC = logits_NV.gather(-1, ids_NC.masked_fill(beyond_NC, 0)).masked_fill_(beyond_NC, -torch.inf)
    return ids_NC.gather(-1, _best(found_NC, k)), peak_N1


def _best(values_NC: Tensor, k: int) -> Tensor:
    """Places of the largest values: on a CPU by `top_k`, which asks whether there were ties.

    A GPU would have to finish its work before it could answer; there all are sorted, few as they are.
    """
    return top_k(values_NC, k) if values_NC.device.type == "cpu" else by_sorting(values_NC, k)


def by_sorting(values_NC: Tensor, k: int) -> Tensor:
    """Places of the `k` largest values, equal ones by the lower place."""
    return values_NC.sort(dim=-1, descending=True, stable=True).indices[:, :k]


def _maxima(logits_NV: Tensor) -> Tensor:
    """The largest logit of every block of ids; the last block may be a short one."""
    whole = logits_NV.shape[-1] // BLOCK * BLOCK
    maxima_NB: Tensor = logits_NV[:, :whole].view(len(logits_NV), -1, BLOCK).amax(dim=-1)
    if whole == logits_NV.shape[-1]:
        return maxima_NB
    return torch.cat([maxima_NB, logits_NV[:, whole:].amax(dim=-1, keepdim=True)], dim=-1)
