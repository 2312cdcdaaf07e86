"""Phase two of the objective, from hidden states: the loss of a pass, and its gradient in the same walk.

The loss separates by rows, so a chunk of logits is made, graded, turned into its own gradient and pulled back
through the head before the next one: three matrix products, and one [chunk, V] at a time (two with the base).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.fused_head.grade import grade, weighed
from afterwit.fused_head.head import Gradients, Head
from afterwit.fused_head.rows import Rows
from afterwit.fused_head.sizes import sizes_on
from afterwit.fused_head.whole import View
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.shares import TERMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The frozen base on the same rows."""

    head: Head
    states_ND: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The rows' share of the batch's loss; shares add up."""

    loss: Tensor
    terms: dict[str, Tensor]
    """Each of `TERMS` before its weight."""
    slopes_ND: Tensor
    """d loss / d states, in their dtype: `states_ND.backward(slopes_ND)` goes on from here."""
    now_N: Tensor
    """log pi at the sampled id of each row that trains."""


@torch.no_grad()
def learn(
    head: Head,
    states_ND: Tensor,
    rows: Rows,
    settings: ObjectiveSettings,
    gradients: Gradients,
    *,
    base: Base | None = None,
    chunk: int | None = None,
) -> Learned:
    """The loss of `rows`, whose states are rows of `states_ND`.

    The head's own gradient is added to `gradients` right here, so it cannot be rescaled afterwards: all
    weights are in `rows` and `settings`. `chunk` rows at a time, or as many as suit the device.
    """
    _check(states_ND, settings, base)
    chunk = chunk or sizes_on(states_ND.device).chunk
    room_NV = head.room(min(chunk, len(rows)))
    base_room_NV = room_NV if base is None else base.head.room(len(room_NV))
    slopes_ND, terms, read = torch.zeros_like(states_ND), dict.fromkeys(TERMS, rows.whole_N.new_zeros(())), []
    for part in rows.chunks(chunk):
        now = _view(head, states_ND, part, room_NV)
        held = None if base is None else _view(base.head, base.states_ND, part, base_room_NV)
        found, now_N = grade(head, now, held, part, settings)
        terms |= {name: terms[name] + term for name, term in found.items()}
        read.append(now_N)
        pulled_ND = head.pull(now.logits_NV, states_ND[part.at_N], gradients)
        slopes_ND[part.at_N] = pulled_ND.to(slopes_ND.dtype)
    return Learned(loss=weighed(terms, settings), terms=terms, slopes_ND=slopes_ND, now_N=torch.cat(read))


def _check(states_ND: Tensor, settings: ObjectiveSettings, base: Base | None) -> None:
    if base is None and settings.beta > 0:
        raise ValueError(f"beta is {settings.beta}, but the base's states are missing")
    if base is not None and len(base.states_ND) != len(states_ND):
        raise ValueError(f"{len(states_ND)} states but {len(base.states_ND)} of the base")


def _view(head: Head, states_ND: Tensor, part: Rows, room_NV: Tensor) -> View:
    return View.of(head.logits(states_ND[part.at_N], room_NV[: len(part)]), part.tau_N)
