"""The tokens' targets, for the terms that read a few ids of each token.

Axis N: the tokens of one response, or the tokens of many responses that train.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class KeptIds(Protocol):
    """What a term keeps of the chosen teacher, without gradient; a data class of tensors [N, ...]."""

    @property
    def ids_TK(self) -> Tensor:
        """The ids that learn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTargets:
    """What tokens learn from, without gradient."""

    ids_N: Tensor
    """The sampled ids."""
    old_N: Tensor
    """log pi_old of the sampled ids."""
    correction_N: Tensor
    """The off-policy correction; 1 if no sampled token learns."""
    advantage_N: Tensor
    """The RL advantage, 0 without one."""
    gap_N: Tensor
    """log pi_T - log pi_old of the sampled ids, 0 without a hint."""
    kept: KeptIds | None
    """`None`: no token is distilled at kept ids."""

    @property
    def read_NJ(self) -> Tensor:
        """The ids whose log-probs the terms read: the sampled one, then the kept ones."""
        sampled_N1 = self.ids_N.unsqueeze(-1)
        return sampled_N1 if self.kept is None else torch.cat([sampled_N1, self.kept.ids_TK], dim=-1)
