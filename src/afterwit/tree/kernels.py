"""Attention of a block of queries to a block of keys, so that several blocks can be summed to one attention.

The output over all keys is the sum of the blocks' outputs weighted by their log-sum-exp `lse`. A block's
gradient is exact if its backward is given the output and `lse` over all keys (as in ring attention, Liu et
al. 2023, arXiv:2310.01889).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 256
"""Queries whose scores the portable kernel holds at a time."""
Gradients = tuple[Tensor, Tensor, Tensor]
"""Of query, key and value. Those of key and value by group, or summed over the groups."""


class Inputs(NamedTuple):
    """What one block attends with. Queries [G, H, Lq, E], keys and values [G, H, Lk, E]."""

    query: Tensor
    key: Tensor
    value: Tensor
    causal: bool
    """The last query sees the last key, and each query no key behind its own place."""
    scale: float
    """The factor of the scores."""


class Kernel(NamedTuple):
    """One way to compute a block."""

    forward: Callable[[Inputs], tuple[Tensor, Tensor]]
    """Returns the output [G, H, Lq, E] and the log-sum-exp of the scores [G, H, Lq]."""
    backward: Callable[[Tensor, Inputs, Tensor, Tensor], Gradients]
    """Takes the output's gradient, the inputs, the output and `lse` over all keys."""


def _chunks(tokens: int, causal: bool, keys: int) -> list[tuple[slice, slice]]:
    """Slices of the queries, each with the keys that any of its queries sees."""
    return [
        (slice(start, min(start + CHUNK, tokens)), slice(0, min(start + CHUNK, tokens) if causal else keys))
        for start in range(0, tokens, CHUNK)
    ]


def _scores(query: Tensor, key: Tensor, causal: bool, scale: float) -> Tensor:
    """Scaled scores; minus infinity for keys that a query does not see."""
    scores = (query @ key.transpose(-1, -2)).to(_precise(query)) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores.masked_fill_(hidden.triu(1 + key.shape[-2] - query.shape[-2]), -torch.inf)
    return scores


def _portable_forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    query, key, value, causal, scale = inputs
    out = torch.empty_like(query)
    lse = query.new_empty(query.shape[:-1], dtype=_precise(query))
    for rows, seen in _chunks(query.shape[-2], causal, key.shape[-2]):
        scores = _scores(query[:, :, rows], key[:, :, seen], causal, scale)
        lse[:, :, rows] = scores.logsumexp(dim=-1)
        weights = (scores - lse[:, :, rows, None]).exp_().to(query.dtype)
        out[:, :, rows] = weights @ value[:, :, seen]
    return out, lse


def _portable_backward(d_out: Tensor, inputs: Inputs, out: Tensor, lse: Tensor) -> Gradients:
    """dV = P' dO; dS = P * (dO V' - rowsum(dO * O)); dQ = dS K; dK = dS' Q.

    FlashAttention (Dao et al. 2022, arXiv:2205.14135), algorithm 4, with P = exp(S - lse).
    """
    query, key, value, causal, scale = inputs
    precise = _precise(query)
    d_query = torch.empty_like(query)
    d_key, d_value = (torch.zeros(key.shape, dtype=precise, device=key.device) for _ in range(2))
    mean = (d_out.to(precise) * out.to(precise)).sum(dim=-1, keepdim=True)
    for rows, seen in _chunks(query.shape[-2], causal, key.shape[-2]):
        scores = _scores(query[:, :, rows], key[:, :, seen], causal, scale)
        weights = (scores - lse[:, :, rows, None]).exp_()
        d_value[:, :, seen] += weights.to(d_out.dtype).transpose(-1, -2) @ d_out[:, :, rows]
        d_weights = (d_out[:, :, rows] @ value[:, :, seen].transpose(-1, -2)).to(precise)
        d_scores = (weights * (d_weights - mean[:, :, rows]) * scale).to(query.dtype)
        d_query[:, :, rows] = d_scores @ key[:, :, seen]
        d_key[:, :, seen] += d_scores.transpose(-1, -2) @ query[:, :, rows]
    return d_query, d_key, d_value


def _precise(tensor: Tensor) -> torch.dtype:
    """What scores are computed in."""
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


PORTABLE = Kernel(_portable_forward, _portable_backward)
