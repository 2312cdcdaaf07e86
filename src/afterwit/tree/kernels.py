"""Attention of a block of queries to a block of keys, with what it takes to add up blocks.

Several blocks of keys make one attention when their parts are weighted by `lse`; the gradient through each
part is exact when its backward is given the whole's output and `lse` (as in ring attention, Liu et al. 2023,
arXiv:2310.01889). Shapes: [G, H, L, E], `lse` [G, H, L].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 256
"""Queries whose scores the portable kernel holds at a time."""


class Kernel(NamedTuple):
    forward: Callable[[Tensor, Tensor, Tensor, bool, float], tuple[Tensor, Tensor]]
    """(query, key, value, causal, scale) -> output and log-sum-exp of the scores."""
    backward: Callable[
        [Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, bool, float], tuple[Tensor, Tensor, Tensor]
    ]
    """(slope of output, query, key, value, output, lse, causal, scale) -> slopes of query, key, value; the
    latter two by group, or summed over them."""


def _chunks(tokens: int, causal: bool, keys: int) -> list[tuple[slice, slice]]:
    """Queries, and the keys that any of them sees."""
    return [
        (slice(at, min(at + CHUNK, tokens)), slice(0, min(at + CHUNK, tokens) if causal else keys))
        for at in range(0, tokens, CHUNK)
    ]


def _scores(query: Tensor, key: Tensor, causal: bool, scale: float) -> Tensor:
    """Where `causal`, the last query sees the last key."""
    scores = (query @ key.transpose(-1, -2)).to(_exact(query)) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores.masked_fill_(hidden.triu(1 + key.shape[-2] - query.shape[-2]), -torch.inf)
    return scores


def _portable_forward(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(query)
    lse = query.new_empty(query.shape[:-1], dtype=_exact(query))
    for rows, seen in _chunks(query.shape[-2], causal, key.shape[-2]):
        scores = _scores(query[:, :, rows], key[:, :, seen], causal, scale)
        lse[:, :, rows] = scores.logsumexp(dim=-1)
        weights = (scores - lse[:, :, rows, None]).exp_().to(query.dtype)
        out[:, :, rows] = weights @ value[:, :, seen]
    return out, lse


def _portable_backward(
    slope: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """dV = P' dO; dS = P * (dO V' - rowsum(dO * O)); dQ = dS K; dK = dS' Q.

    FlashAttention (Dao et al. 2022, arXiv:2205.14135), algorithm 4, with P = exp(S - lse).
    """
    exact = _exact(query)
    d_query = torch.empty_like(query)
    d_key, d_value = (torch.zeros(key.shape, dtype=exact, device=key.device) for _ in range(2))
    mean = (slope.to(exact) * out.to(exact)).sum(dim=-1, keepdim=True)
    for rows, seen in _chunks(query.shape[-2], causal, key.shape[-2]):
        scores = _scores(query[:, :, rows], key[:, :, seen], causal, scale)
        weights = (scores - lse[:, :, rows, None]).exp_()
        d_value[:, :, seen] += weights.to(slope.dtype).transpose(-1, -2) @ slope[:, :, rows]
        pulled = (slope[:, :, rows] @ value[:, :, seen].transpose(-1, -2)).to(exact)
        d_scores = (weights * (pulled - mean[:, :, rows]) * scale).to(query.dtype)
        d_query[:, :, rows] = d_scores @ key[:, :, seen]
        d_key[:, :, seen] += d_scores.transpose(-1, -2) @ query[:, :, rows]
    return d_query, d_key, d_value


def _exact(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


PORTABLE = Kernel(_portable_forward, _portable_backward)
