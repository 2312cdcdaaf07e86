"""From next-token logits to ids and log-probs, for all rows at once. Axes: B rows, V vocabulary.

The mask comes first. The rest has the order of transformers: penalties and bias, temperature, top-k, top-p,
min-p. A log-prob is of the distribution that was drawn from, after all of these, renormalised. A greedy row
(`Sampling.greedy`) takes the most likely id, the lower of two equal ones; its log-prob is at temperature 1,
without truncation. A forced id replaces the draw and is never truncated away, so its log-prob is finite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from afterwit.engines.port import TopLogprobs
from afterwit.turn import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How one row's next id is drawn."""

    sampling: Sampling
    uniform: float
    """In [0, 1). The only randomness of the draw, so that a seed gives the same ids in any batch."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """How often each id occurs in the response so far. Read if the sampling has penalties."""
    prompt: frozenset[int] = frozenset()
    """The ids of the prompt. Read if the sampling has a repetition penalty."""
    forced: int | None = None
    mask: Callable[[], Tensor | None] | None = None
    """Whether each id may be drawn, [V]; all may if it gives None. Called once the logits are there."""
    top_logprobs: int | None = None
    """How many alternatives to return; None: none, nor the model's own log-prob."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One row's next id."""

    id: int
    logprob: float
    """Not finite if the logits are not."""
    top: TopLogprobs | None = None
    """None unless the row requests it."""


def draw(logits_BV: Tensor, draws: Sequence[Draw]) -> list[Drawn]:
    """Each row's next id."""
    logits_BV = logits_BV.float()
    masked_BV = _masked(logits_BV, draws)
    scaled_BV = _truncated(_tempered(_penalised(masked_BV, draws), draws), draws)
    relative_BV = scaled_BV - scaled_BV.amax(-1, keepdim=True)
    # Apple's GPUs have no float64
    precise = torch.float32 if relative_BV.device.type == "mps" else torch.float64
    cdf_BV = relative_BV.exp().cumsum(-1, dtype=precise)
    ids_B = _chosen(relative_BV, cdf_BV, draws)
    logprobs_B = relative_BV.gather(-1, ids_B[:, None])[:, 0] - cdf_BV[:, -1].log()
    return [
        Drawn(id=index, logprob=logprob, top=_top(logits_V, index, row.top_logprobs))
        for index, logprob, logits_V, row in zip(
            ids_B.tolist(), logprobs_B.tolist(), logits_BV, draws, strict=True
        )
    ]


def _top(logits_V: Tensor, drawn: int, count: int | None) -> TopLogprobs | None:
    """The model's own distribution at one position, as far as requested."""
    if count is None:
        return None
    logprobs_V = logits_V.log_softmax(-1)
    likeliest = logprobs_V.topk(min(count, len(logprobs_V)))
    return TopLogprobs(
        sampled=logprobs_V[drawn].item(),
        ids=tuple(likeliest.indices.tolist()),
        logprobs=tuple(likeliest.values.tolist()),
    )


def _masked(logits_BV: Tensor, draws: Sequence[Draw]) -> Tensor:
    """-inf for the ids that a row may not draw. Without a mask, the same tensor."""
    masks = {index: row.mask() for index, row in enumerate(draws) if row.mask is not None}
    if all(mask_V is None for mask_V in masks.values()):
        return logits_BV
    left_BV = logits_BV.clone()
    for index, mask_V in masks.items():
        if mask_V is not None:
            left_BV[index].masked_fill_(~mask_V.to(left_BV.device), -torch.inf)
    return left_BV


def _chosen(relative_BV: Tensor, cdf_BV: Tensor, draws: Sequence[Draw]) -> Tensor:
    ids_B = _inverse_cdf(cdf_BV, [row.uniform for row in draws])
    if any(row.sampling.greedy for row in draws):
        greedy_B = torch.tensor([row.sampling.greedy for row in draws], device=ids_B.device)
        ids_B = torch.where(greedy_B, relative_BV.argmax(-1), ids_B)
    for index, row in enumerate(draws):
        if row.forced is not None:
            ids_B[index] = row.forced
    return ids_B


def _inverse_cdf(cdf_BV: Tensor, uniforms: Sequence[float]) -> Tensor:
    """The first id whose cumulative weight exceeds the uniform's share, [B]. Never an id of weight 0."""
    total_B = cdf_BV[:, -1]
    share_B = torch.tensor(uniforms, dtype=cdf_BV.dtype, device=cdf_BV.device) * total_B
    share_B = torch.minimum(share_B, torch.nextafter(total_B, torch.zeros_like(total_B)))
    found_B = torch.searchsorted(cdf_BV, share_B[:, None], right=True)[:, 0]
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
    """Top-k, top-p and min-p, each over what the one before left."""
    rows = [index for index, row in enumerate(draws) if row.sampling.truncated and not row.sampling.greedy]
    if not rows:
        return scaled_BV
    left_BV = scaled_BV[rows]
    settings = [draws[index].sampling for index in rows]
    left_BV = top_k(left_BV, [sampling.top_k for sampling in settings])
    left_BV = top_p(left_BV, [sampling.top_p for sampling in settings])
    left_BV = min_p(left_BV, [sampling.min_p for sampling in settings])
    kept_BV = scaled_BV.clone()
    kept_BV[rows] = left_BV
    for index in rows:
        if (forced := draws[index].forced) is not None:
            kept_BV[index, forced] = scaled_BV[index, forced]
    return kept_BV


def top_k(scaled_BV: Tensor, ks: Sequence[int]) -> Tensor:
    """Each row without all but its k largest (ties with the k-th stay); k = 0 keeps all."""
    most = min(max(ks), scaled_BV.shape[-1])
    if most == 0:
        return scaled_BV
    places_B = torch.tensor([min(k, most) - 1 for k in ks], device=scaled_BV.device)
    kth_B = scaled_BV.topk(most).values.gather(-1, places_B.clamp(min=0)[:, None])[:, 0]
    least_B = kth_B.masked_fill(places_B < 0, -torch.inf)
    return scaled_BV.masked_fill(scaled_BV < least_B[:, None], -torch.inf)


def top_p(scaled_BV: Tensor, ps: Sequence[float]) -> Tensor:
    """Each row without the ids that follow, in falling order, once a mass of p is kept; the first stays."""
    if min(ps) >= 1.0:
        return scaled_BV
    masses_B = torch.tensor([p if p < 1.0 else torch.inf for p in ps], device=scaled_BV.device)
    falling_BV, order_BV = scaled_BV.sort(descending=True, stable=True)
    probs_BV = falling_BV.softmax(-1)
    beyond_BV = probs_BV.cumsum(-1) - probs_BV >= masses_B[:, None]
    beyond_BV[:, 0] = False
    return scaled_BV.masked_fill(torch.zeros_like(beyond_BV).scatter_(-1, order_BV, beyond_BV), -torch.inf)


def min_p(scaled_BV: Tensor, ps: Sequence[float]) -> Tensor:
    """Each row without the ids less probable than p times its most probable."""
    if max(ps) <= 0.0:
        return scaled_BV
    probs_BV = scaled_BV.softmax(-1)
    least_B = probs_BV.amax(-1) * torch.tensor(ps, device=scaled_BV.device)
    return scaled_BV.masked_fill(probs_BV < least_B[:, None], -torch.inf)
