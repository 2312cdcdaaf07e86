"""Muon: momentum whose matrix updates are orthogonalised (Jordan et al., 2024, Newton-Schulz of five
steps).
"""

from collections.abc import Iterable

import torch
from torch import Tensor


class Muon(torch.optim.Optimizer):
    """For the hidden matrices of a network; everything else belongs to another optimiser."""

    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update; the step's size does not depend on the matrix's shape."""
        for group in self.param_groups:
            for matrix in group["params"]:
                moving = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
                moving.lerp_(matrix.grad, 1 - group["momentum"])
                ahead = matrix.grad.lerp(moving, group["momentum"])
                scale = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.add_(orthogonal(ahead), alpha=-group["lr"] * scale)


def orthogonal(matrix_MN: Tensor) -> Tensor:
    """Nearly the nearest semi-orthogonal matrix: its singular values lie around 1."""
    x = (matrix_MN / (matrix_MN.norm() + 1e-7)).bfloat16()
    wide = x if x.shape[0] <= x.shape[1] else x.T
    for _ in range(5):
        gram = wide @ wide.T
        wide = 3.4445 * wide + (-4.7750 * gram + 2.0315 * gram @ gram) @ wide
    found_MN: Tensor = wide if x.shape[0] <= x.shape[1] else wide.T
    return found_MN.to(matrix_MN.dtype)
