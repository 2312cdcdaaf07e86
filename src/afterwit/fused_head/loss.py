"""Phase two of the objective, from hidden states: the loss of a micro-batch and its gradient in one walk.

The loss separates by rows. So the logits of a chunk are computed, read, overwritten by their own gradient and
sent back through the head before the next chunk: three matrix products, and one [chunk, V] at a time (two
with the reference).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.fused_head.head import Head, HeadGradients
from afterwit.fused_head.rows import Rows
from afterwit.fused_head.sizes import sizes_on
from afterwit.fused_head.terms.chunk import chunk_loss, weighted
from afterwit.fused_head.terms.dense import LogitsChunk
from afterwit.objective.choices.objectives import TERMS
from afterwit.objective.settings import ObjectiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The reference of the KL term on the same rows; its width and its device may be its own."""

    head: Head
    states_ND: Tensor

    def chunk(self, part: Rows, buffer_NV: Tensor) -> LogitsChunk:
        """Its logits of some rows, on the rows' device."""
        at_N = part.at_N.to(self.states_ND.device)
        logits_NV = self.head.logits(self.states_ND[at_N], buffer_NV[: len(part)])
        return LogitsChunk.of(logits_NV.to(part.at_N.device), part.tau_N)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLoss:
    """The rows' part of the batch's loss; parts add up."""

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
    reference: Reference | None = None,
    chunk: int | None = None,
) -> FusedLoss:
    """The loss of `rows`, whose states are rows of `states_ND`.

    The head's own gradient is added to `gradients` at once and cannot be rescaled afterwards: all weights are
    in `rows` and `settings`. `chunk` rows at a time; by default as many as suit the device.
    """
    _check(states_ND, settings, reference)
    chunk = chunk or sizes_on(states_ND.device).chunk
    buffer_NV = head.buffer(min(chunk, len(rows)))
    reference_buffer_NV = buffer_NV if reference is None else reference.head.buffer(len(buffer_NV))
    grad_states_ND, now_parts = torch.zeros_like(states_ND), []
    terms = dict.fromkeys(TERMS, rows.dense_N.new_zeros(()))
    for part in rows.chunks(chunk):
        logits_NV = head.logits(states_ND[part.at_N], buffer_NV[: len(part)])
        now = LogitsChunk.of(logits_NV, part.tau_N)
        other = None if reference is None else reference.chunk(part, reference_buffer_NV)
        found, now_N = chunk_loss(head, now, other, part, settings)
        terms |= {name: terms[name] + term for name, term in found.items()}
        now_parts.append(now_N)
        grad_part_ND = head.backward(now.logits_NV, states_ND[part.at_N], gradients)
        grad_states_ND[part.at_N] = grad_part_ND.to(grad_states_ND.dtype)
    return FusedLoss(
        loss=weighted(terms, settings), terms=terms, grad_states_ND=grad_states_ND, now_N=torch.cat(now_parts)
    )


def _check(states_ND: Tensor, settings: ObjectiveSettings, reference: Reference | None) -> None:
    if reference is None and settings.beta > 0:
        raise ValueError(f"beta is {settings.beta}, but the reference's states are missing")
    if reference is not None and len(reference.states_ND) != len(states_ND):
        raise ValueError(f"{len(states_ND)} states but {len(reference.states_ND)} of the reference")
