"""From next-token logits to ids and log-probs, for all rows at once. Axes: B rows, V vocabulary.

The order is that of transformers: penalties and bias, temperature, top-k, top-p, min-p. A log-prob is of the
distribution that was drawn from: after all of these, renormalised. A greedy row (temperature < 0.05) takes
the most likely id, the lower one of equals, and its log-prob is at temperature 1, truncation aside. A forced
id takes the draw's place and is never truncated away, so its log-prob is finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from afterwit.core.turn import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How one row's next id is drawn."""

    sampling: Sampling
    uniform: float
    """In [0, 1): the draw's whole randomness, so that a seed gives the same ids in any batch."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """How often each id occurs in the response so far; read where the sampling has penalties."""
    prompt: frozenset[int] = frozenset()
    """The ids of the prompt; read where the sampling has a repetition penalty."""
    forced: int | None = None


def draw(logits_BV: Tensor, draws: Sequence[Draw]) -> tuple[list[int], list[float]]:
    """Each row's next id and its log-prob, [B] and [B]."""
    scaled_BV = _truncated(_tempered(_penalised(logits_BV.float(), draws), draws), draws)
    logprobs_BV = scaled_BV.log_softmax(-1)
    ids_B = logprobs_BV.argmax(-1)
    if not all(row.sampling.greedy for row in draws):
        greedy_B = torch.tensor([row.sampling.greedy for row in draws], device=ids_B.device)
        ids_B = torch.where(greedy_B, ids_B, _inverse_cdf(logprobs_BV, [row.uniform for row in draws]))
    for index, row in enumerate(draws):
        if row.forced is not None:
            ids_B[index] = row.forced
    chosen_B = logprobs_BV.gather(-1, ids_B[:, None])[:, 0]
    return ids_B.tolist(), chosen_B.tolist()


def _inverse_cdf(logprobs_BV: Tensor, uniforms: Sequence[float]) -> Tensor:
    """The first id whose cumulative probability exceeds the uniform, [B]; never one of probability 0."""
    cdf_BV = logprobs_BV.double().exp().cumsum(-1)
    total_B = cdf_BV[:, -1]
    uniforms_B = torch.tensor(uniforms, dtype=torch.float64, device=cdf_BV.device)
    threshold_B = torch.minimum(uniforms_B * total_B, torch.nextafter(total_B, torch.zeros_like(total_B)))
    found_B = torch.searchsorted(cdf_BV, threshold_B[:, None], right=True)[:, 0]
    return found_B.clamp_(max=cdf_BV.shape[-1] - 1)


def _tempered(logits_BV: Tensor, draws: Sequence[Draw]) -> Tensor:
    temperatures = [1.0 if row.sampling.greedy else row.sampling.temperature for row in draws]
    if all(temperature == 1.0 for temperature in temperatures):
        return logits_BV
    return logits_BV / torch.tensor(temperatures, device=logits_BV.device)[:, None]


def _penalised(logits_BV: Tensor, draws: Sequence[Draw]) -> Tensor:
    rows = [index for index, row in enumerate(draws) if row.sampling.penalised]
    if not rows:
        return logits_BV
    changed_BV = logits_BV.clone()
    for index in rows:
        _penalise(changed_BV[index], draws[index])
    return changed_BV


def _penalise(logits_V: Tensor, row: Draw) -> None:
    """In place. Repetition reads prompt and response; frequency and presence the response only (OpenAI)."""
    sampling = row.sampling
    if (repetition := sampling.repetition_penalty) != 1.0:
        seen = torch.tensor(sorted(row.prompt.union(row.counts)), dtype=torch.long, device=logits_V.device)
        old = logits_V[seen]
        logits_V[seen] = torch.where(old < 0, old * repetition, old / repetition)
    if row.counts and (sampling.frequency_penalty or sampling.presence_penalty):
        ids = torch.tensor(list(row.counts), device=logits_V.device)
        counts = torch.tensor(list(row.counts.values()), dtype=torch.float32, device=logits_V.device)
        logits_V[ids] -= sampling.frequency_penalty * counts + sampling.presence_penalty
    for token, bias in sampling.logit_bias:
        logits_V[token] += bias


def _truncated(scaled_BV: Tensor, draws: Sequence[Draw]) -> Tensor:
    rows = [index for index, row in enumerate(draws) if row.sampling.truncated and not row.sampling.greedy]
    if not rows:
        return scaled_BV
    kept_BV = scaled_BV.clone()
    for index in rows:
        kept_BV[index].masked_fill_(_outside(scaled_BV[index], draws[index]), -torch.inf)
    return kept_BV


def _outside(scaled_V: Tensor, row: Draw) -> Tensor:
    """Which ids top-k, top-p and min-p exclude, each seeing what the one before left, [V] of bool."""
    left_V = top_k(scaled_V, row.sampling.top_k)
    left_V = top_p(left_V, row.sampling.top_p)
    left_V = min_p(left_V, row.sampling.min_p)
    outside_V = left_V == -torch.inf
    if row.forced is not None:
        outside_V[row.forced] = False
    return outside_V


def top_k(scaled_V: Tensor, k: int) -> Tensor:
    """Without all but the k largest (ties with the k-th stay); k = 0 keeps all."""
    if not 0 < k < len(scaled_V):
        return scaled_V
    return scaled_V.masked_fill(scaled_V < scaled_V.topk(k).values[-1], -torch.inf)


def top_p(scaled_V: Tensor, p: float) -> Tensor:
    """Without the ids that follow, in falling order, once a mass of p is kept; the largest always stays."""
    if p >= 1.0:
        return scaled_V
    falling_V, order_V = scaled_V.sort(descending=True, stable=True)
    probs_V = falling_V.softmax(-1)
    beyond_V = probs_V.cumsum(-1) - probs_V >= p
    beyond_V[0] = False
    return scaled_V.masked_fill(torch.zeros_like(beyond_V).scatter_(0, order_V, beyond_V), -torch.inf)


def min_p(scaled_V: Tensor, p: float) -> Tensor:
    """Without the ids less probable than p times the most probable."""
    if p <= 0.0:
        return scaled_V
    probs_V = scaled_V.softmax(-1)
    return scaled_V.masked_fill(probs_V < p * probs_V.max(), -torch.inf)
