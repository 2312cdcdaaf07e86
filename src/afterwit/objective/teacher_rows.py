"""A teacher's rows that somebody else computed, in the place of its logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherRows:
    """Log-probs of a teacher over its whole vocabulary, at the sampled id and at a few ids of each token.

    Rows are padded to one width; a token that is not distilled has no valid id.
    """

    sampled_T: Tensor
    """At the sampled ids; where a token is not distilled, anything."""
    ids_TK: Tensor
    """int64; where it is padded, any id."""
    logprobs_TK: Tensor
    valid_TK: Tensor | None = None
    """False where the ids are padded; None: they are not."""

    def __post_init__(self) -> None:
        shapes = {tuple(each.shape) for each in (self.ids_TK, self.logprobs_TK, self._valid_TK)}
        if len(shapes) != 1:
            raise ValueError(f"ids, log-probs and validity have the shapes {sorted(shapes)}")
        if len(self.sampled_T) != len(self.ids_TK):
            raise ValueError(f"{len(self.sampled_T)} sampled ids but {len(self.ids_TK)} rows")
        if not bool(self.distilled_T.any()):
            raise ValueError("no token is distilled")

    @property
    def distilled_T(self) -> Tensor:
        """The tokens that have a row."""
        return self._valid_TK.any(dim=-1)

    @property
    def _valid_TK(self) -> Tensor:
        return torch.ones_like(self.ids_TK, dtype=torch.bool) if self.valid_TK is None else self.valid_TK

    def at(self, ids_TJ: Tensor) -> Tensor:
        """Its log-probs at other ids; NaN where it said nothing, so that nothing can be learned from it."""
        same_TJK = (ids_TJ.unsqueeze(-1) == self.ids_TK.unsqueeze(-2)) & self._valid_TK.unsqueeze(-2)
        found_TJ = torch.where(same_TJK, self.logprobs_TK.unsqueeze(-2), 0.0).sum(dim=-1)
        return torch.where(same_TJK.any(dim=-1), found_TJ, torch.nan)
