"""A teacher's rows that somebody else computed, in the place of its logits."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRows:
    """Log-probs of the teacher over its whole vocabulary, at a few ids of each token: the sampled one first.

    Rows are padded to one width; a token that is not distilled has no valid id.
    """

    ids_TK: Tensor
    """int64; where it is padded, the sampled id."""
    logprobs_TK: Tensor
    valid_TK: Tensor

    def __post_init__(self) -> None:
        shapes = {tuple(each.shape) for each in (self.ids_TK, self.logprobs_TK, self.valid_TK)}
        if len(shapes) != 1:
            raise ValueError(f"ids, log-probs and validity have the shapes {sorted(shapes)}")
        if not bool(self.valid_TK.any()):
            raise ValueError("no token is distilled")
        if bool((self.valid_TK & ~self.distilled_T[:, None]).any()):
            raise ValueError("a teacher's row lacks the sampled id, which comes first")

    @property
    def distilled_T(self) -> Tensor:
        """The tokens that have a row."""
        return self.valid_TK[:, 0]
