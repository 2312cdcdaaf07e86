"""What a term of the loss is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from afterwit.objective.candidates import Candidates
from afterwit.objective.logprobs import KeptIds, TokenTargets
from afterwit.objective.settings import ObjectiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A term that reads a few ids of each token."""

    advantages: Callable[[TokenTargets, ObjectiveSettings], tuple[Tensor, Tensor]]
    """(targets, settings) -> ids [N, J] and the advantage [N, J] that pushes each up or down."""
    loss: Callable[[Tensor, TokenTargets, ObjectiveSettings], Tensor]
    """(log pi [N, 1 + K] at the sampled id and the kept ids, targets, settings) -> loss [N]."""
    corrected: bool = False
    """Whether the loss is multiplied by the off-policy correction: sampled tokens learn."""
    keep: Callable[[Candidates, Tensor, ObjectiveSettings], KeptIds] | None = None
    """(candidates, chosen hint [T], settings) -> what is kept of that hint's teacher; `None`: nothing."""


def of_sampled(targets: TokenTargets, advantage_N: Tensor) -> tuple[Tensor, Tensor]:
    """The sampled ids with their advantage, each [N, 1]."""
    return targets.ids_N[:, None], advantage_N[:, None]
