"""Phase two of the objective, from hidden states: the loss of a pass, and its gradient in the same walk.

The loss separates by rows, so a chunk of logits is made, graded, turned into its own gradient and pulled back
through the head before the next one: three matrix products, and one [chunk, V] at a time (two with the base).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.fused_head.chunk_loss import chunk_loss, weighed
from afterwit.fused_head.dense_terms import LogitsChunk
from afterwit.fused_head.head import Head, HeadGradients
from afterwit.fused_head.rows import Rows
from afterwit.fused_head.sizes import sizes_on
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.shares import TERMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The frozen base on the same rows."""

    head: Head
    states_ND: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLoss:
    """The rows' share of the batch's loss; shares add up."""

    loss: Tensor
    terms: dict[str, Tensor]
    """Each of `TERMS` before its weight."""
    grad_states_ND: Tensor
    """d loss / d states, in their dtype: `states_ND.backward(grad_states_ND)` goes on from here."""
    now_N: Tensor
    """log pi at the sampled id of each row that trains."""


@torch.no_grad()
def fused_loss(
    head: Head,
    states_ND: Tensor,
    rows: Rows,
    settings: ObjectiveSettings,
    gradients: HeadGradients,
    *,
    base: Reference | None = None,
    chunk: int | None = None,
) -> FusedLoss:
    """The loss of `rows`, whose states are rows of `states_ND`.

    The head's own gradient is added to `gradients` right here, so it cannot be rescaled afterwards: all
    weights are in `rows` and `settings`. `chunk` rows at a time, or as many as suit the device.
    """
    _check(states_ND, settings, base)
    chunk = chunk or sizes_on(states_ND.device).chunk
    buffer_NV = head.buffer(min(chunk, len(rows)))
    reference_buffer_NV = buffer_NV if base is None else base.head.buffer(len(buffer_NV))
    grad_states_ND, now_parts = torch.zeros_like(states_ND), []
    terms = dict.fromkeys(TERMS, rows.dense_N.new_zeros(()))
    for part in rows.chunks(chunk):
        now = _logits_chunk(head, states_ND, part, buffer_NV)
        held = None if base is None else _logits_chunk(base.head, base.states_ND, part, reference_buffer_NV)
        found, now_N = chunk_loss(head, now, held, part, settings)
        terms |= {name: terms[name] + term for name, term in found.items()}
        now_parts.append(now_N)
        grad_part_ND = head.backward(now.logits_NV, states_ND[part.at_N], gradients)
        grad_states_ND[part.at_N] = grad_part_ND.to(grad_states_ND.dtype)
    return FusedLoss(
        loss=weighed(terms, settings), terms=terms, grad_states_ND=grad_states_ND, now_N=torch.cat(now_parts)
    )


def _check(states_ND: Tensor, settings: ObjectiveSettings, base: Reference | None) -> None:
    if base is None and settings.beta > 0:
        raise ValueError(f"beta is {settings.beta}, but the base's states are missing")
    if base is not None and len(base.states_ND) != len(states_ND):
        raise ValueError(f"{len(states_ND)} states but {len(base.states_ND)} of the base")


def _logits_chunk(head: Head, states_ND: Tensor, part: Rows, buffer_NV: Tensor) -> LogitsChunk:
    return LogitsChunk.of(head.logits(states_ND[part.at_N], buffer_NV[: len(part)]), part.tau_N)
