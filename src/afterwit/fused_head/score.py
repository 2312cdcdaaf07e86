"""Scoring hidden states without gradient, a chunk of rows at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.fused_head.head import Head
from afterwit.fused_head.sizes import sizes_on
from afterwit.fused_head.softmax import Softmax, softmax_of
from afterwit.fused_head.top_k import two_stage_top_k
from afterwit.objective.logprobs import full_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The log-probs of each row that were asked for."""

    softmax: Softmax
    top_ids_NK: Tensor
    """Largest logit first, equal ones by the lower id."""
    top_NK: Tensor
    """Log-probs of `top_ids_NK`."""
    at_NJ: Tensor
    """Log-probs at the ids asked for."""


@torch.no_grad()
def score(
    head: Head, states_ND: Tensor, tau_N: Tensor, ids_NJ: Tensor, *, k: int = 0, chunk: int | None = None
) -> Scores:
    """Log-probs at `tau_N` over the whole vocabulary: of the `k` likeliest ids and at `ids_NJ`.

    `chunk` rows at a time, or as many as suit the device.
    """
    if not len(states_ND) == len(tau_N) == len(ids_NJ):
        raise ValueError(f"{len(states_ND)} states, {len(tau_N)} temperatures, {len(ids_NJ)} rows of ids")
    chunk = chunk or sizes_on(states_ND.device).chunk
    buffer_NV = head.buffer(min(chunk, len(states_ND)))
    parts = []
    for rows in zip(
        torch.split(states_ND, chunk), torch.split(tau_N, chunk), torch.split(ids_NJ, chunk), strict=True
    ):
        logits_NV = head.logits(rows[0], buffer_NV[: len(rows[0])])
        parts.append(_read(logits_NV, rows[1].to(head.dtype), rows[2], k))
    return _scores(tuple(map(torch.cat, zip(*parts, strict=True))))


@torch.no_grad()
def score_logits(logits_NV: Tensor, tau_N: Tensor, ids_NJ: Tensor, *, k: int) -> Scores:
    """`score` of logits that exist already."""
    logits_NV = full_precision(logits_NV)
    return _scores(_read(logits_NV, tau_N.to(logits_NV.dtype), ids_NJ, k))


def _scores(parts: tuple[Tensor, ...]) -> Scores:
    tau_N1, peak_N1, log_sum_N1, top_ids_NK, top_NK, at_NJ = parts
    softmax = Softmax(tau_N1=tau_N1, peak_N1=peak_N1, log_sum_N1=log_sum_N1)
    return Scores(softmax=softmax, top_ids_NK=top_ids_NK, top_NK=top_NK, at_NJ=at_NJ)


def _read(logits_NV: Tensor, tau_N: Tensor, ids_NJ: Tensor, k: int) -> tuple[Tensor, ...]:
    """A chunk's part of `Scores`, in the order in which `score` names it."""
    top_ids_NK, peak_N1 = ids_NJ[:, :0], None
    if k:
        top_ids_NK, peak_N1 = two_stage_top_k(logits_NV, k)
    softmax = softmax_of(logits_NV, tau_N, peak_N1)
    top_NK = softmax.logprobs(logits_NV.gather(-1, top_ids_NK))
    at_NJ = softmax.logprobs(logits_NV.gather(-1, ids_NJ))
    return softmax.tau_N1, softmax.peak_N1, softmax.log_sum_N1, top_ids_NK, top_NK, at_NJ
