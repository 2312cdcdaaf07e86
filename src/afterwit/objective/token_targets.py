"""The terms that read a few ids of each token: what the tokens are taught, and the loss it becomes.

The tokens, axis N, are those of one response, or of many with those that do not train left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.objective.distill import Distilled, distill_loss
from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target
from afterwit.objective.terms.combine import combine_loss
from afterwit.objective.terms.rl import rl_loss
from afterwit.objective.terms.token_opd import token_opd_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTargets:
    """What tokens are taught, without gradient."""

    ids_N: Tensor
    """The sampled ids."""
    old_N: Tensor
    """log pi_old of those."""
    correction_N: Tensor
    """The off-policy correction; 1 where no sampled token learns."""
    advantage_N: Tensor
    """The RL advantage, 0 without one."""
    gap_N: Tensor
    """log pi_T - log pi_old of the sampled ids, 0 without a hint."""
    kept: Distilled | None
    """`None` where none of the tokens is distilled at kept ids."""

    @property
    def read_NJ(self) -> Tensor:
        """The ids whose log-probs the terms read: the sampled one, then the kept ones."""
        sampled_N1 = self.ids_N.unsqueeze(-1)
        return sampled_N1 if self.kept is None else torch.cat([sampled_N1, self.kept.ids_TK], dim=-1)


def token_targets(sample: Sample, target: Target, settings: ObjectiveSettings) -> TokenTargets:
    """What the tokens of one response are taught."""
    carried, old_T, hint_targets = sample.carries(settings), target.old_T, target.hint_targets
    kept = None if hint_targets is None else hint_targets.kept
    sampled_learn = "rl" in carried or (carried and kept is None)
    return TokenTargets(
        ids_N=sample.ids_T,
        old_N=old_T,
        correction_N=target.weight_T if sampled_learn else torch.ones_like(old_T),
        advantage_N=torch.full_like(old_T, sample.advantage or 0.0),
        gap_N=torch.zeros_like(old_T) if hint_targets is None else hint_targets.gap_T,
        kept=kept,
    )


def term_loss(term: str, now_NJ: Tensor, what: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The loss of each token [N] in a term of `settings.terms`.

    `now_NJ` are log pi at `what.read_NJ`, with the gradient.
    """
    if term == "opd" and what.kept is not None:
        return distill_loss(now_NJ[:, 1:], what.kept, settings)
    now_N, old_N, correction_N = now_NJ[:, 0], what.old_N, what.correction_N
    if term == "rl":
        return rl_loss(now_N, old_N, correction_N, what.advantage_N, settings)
    if term == "combine":
        return combine_loss(now_N, old_N, correction_N, what.gap_N, what.advantage_N, settings)
    return token_opd_loss(now_N, old_N, correction_N, what.gap_N, settings)
