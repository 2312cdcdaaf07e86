"""What LoRA adds to a head: scale * (x A^T) B^T, through rows of the rank's width (Hu et al. 2021,
arXiv:2106.09685). Nothing is [V, D] large.

Axis beside the folder's: R rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """The two factors; products with them are taken in the precision of logits, whatever they are kept in."""

    down_RD: Tensor
    """A."""
    up_VR: Tensor
    """B."""
    scale: float

    def __post_init__(self) -> None:
        if len(self.down_RD) != self.up_VR.shape[1]:
            raise ValueError(f"A has rank {len(self.down_RD)} but B {self.up_VR.shape[1]}")

    @property
    def shape(self) -> tuple[int, int]:
        """Of the head it belongs to."""
        return len(self.up_VR), self.down_RD.shape[1]

    def add(self, states_ND: Tensor, logits_NV: Tensor) -> None:
        """Add its logits to those of the head."""
        logits_NV.addmm_(self._narrow(states_ND, logits_NV.dtype), self.up_VR.t().to(logits_NV.dtype))

    def at(self, states_ND: Tensor, ids_NK: Tensor, dtype: torch.dtype) -> Tensor:
        """Its logits [N, K] at a few ids of each row."""
        return torch.einsum("nr,nkr->nk", self._narrow(states_ND, dtype), self.up_VR[ids_NK].to(dtype))

    def backward(
        self, grad_logits_NV: Tensor, states_ND: Tensor, by_down_RD: Tensor | None, by_up_VR: Tensor | None
    ) -> Tensor:
        """Its part [N, D] of the states' gradient; that of A and B is added to the buffers that are given."""
        dtype = grad_logits_NV.dtype
        narrow_NR = torch.mm(grad_logits_NV, self.up_VR.to(dtype)).mul_(self.scale)
        if by_up_VR is not None:
            by_up_VR.addmm_(grad_logits_NV.t(), self._narrow(states_ND, dtype))
        if by_down_RD is not None:
            by_down_RD.addmm_(narrow_NR.t(), states_ND.to(dtype))
        return torch.mm(narrow_NR, self.down_RD.to(dtype))

    def _narrow(self, states_ND: Tensor, dtype: torch.dtype) -> Tensor:
        """scale * x A^T, [N, R]."""
        return torch.mm(states_ND.to(dtype), self.down_RD.t().to(dtype)).mul_(self.scale)
