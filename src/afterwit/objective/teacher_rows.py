"""A teacher's rows that somebody else computed, in the place of its logits."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    asked_ids_TJ: Tensor | None = None
    """Other ids that the teacher was asked about; None: it was not."""
    asked_TJ: Tensor | None = None
    """Its log-probs of these."""

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

    def to(self, dtype: torch.dtype) -> TeacherRows:
        """The same with log-probs of this kind."""
        asked_TJ = None if self.asked_TJ is None else self.asked_TJ.to(dtype)
        return replace(self, logprobs_TK=self.logprobs_TK.to(dtype), asked_TJ=asked_TJ)

    def at(self, ids_TJ: Tensor) -> Tensor:
        """Its log-probs at other ids; NaN where it said nothing, so that nothing can be learned from it."""
        found_TJ = _at(ids_TJ, self.ids_TK, self.logprobs_TK, self._valid_TK)
        if self.asked_ids_TJ is None or self.asked_TJ is None:
            return found_TJ
        told = torch.ones_like(self.asked_ids_TJ, dtype=torch.bool)
        asked_TJ = _at(ids_TJ, self.asked_ids_TJ, self.asked_TJ, told)
        return torch.where(found_TJ.isnan(), asked_TJ, found_TJ)


def _at(ids_TJ: Tensor, known_TK: Tensor, logprobs_TK: Tensor, valid_TK: Tensor) -> Tensor:
    """The log-probs of ids among the known ones, which differ from each other; NaN at all others."""
    same_TJK = (ids_TJ.unsqueeze(-1) == known_TK.unsqueeze(-2)) & valid_TK.unsqueeze(-2)
    found_TJ = torch.where(same_TJK, logprobs_TK.unsqueeze(-2), 0.0).sum(dim=-1)
    return torch.where(same_TJK.any(dim=-1), found_TJ, torch.nan)
