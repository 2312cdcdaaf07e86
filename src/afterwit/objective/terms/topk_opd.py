"""Top-K OPD: the hinted teacher corrects the K likeliest ids at every position (arXiv:2603.10165)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from afterwit.objective.choices import SUBSETS
from afterwit.objective.logprobs import TokenTargets, with_tail
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms.term import Term, ppo

if TYPE_CHECKING:
    from afterwit.objective.target import Candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The ids that learn and their advantages, without gradient; S is K, or K + 1 with the tail."""

    ids_TK: Tensor
    valid_TK: Tensor
    """False for an id that is not in the subset, or that pi_old gives no probability: its advantage is 0."""
    old_TS: Tensor
    """log pi_old."""
    advantage_TS: Tensor
    """clip(log pi_T - log pi_old, -C, C) * w."""


def keep(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> Kept:
    """The targets of the chosen hint: the subset S, its weights w and its advantages."""
    ids_TK, old_TK, teacher_TK, member_TK = SUBSETS[settings.subset](found, hint_T)
    valid_TK = old_TK > -torch.inf
    if member_TK is not None:
        valid_TK = valid_TK & member_TK
    old_TS, teacher_TS = (known_TK.masked_fill(~valid_TK, 0.0) for known_TK in (old_TK, teacher_TK))
    present_TS = valid_TK
    if settings.tail_bucket:
        old_TS, teacher_TS = with_tail(old_TS, valid_TK), with_tail(teacher_TS, valid_TK)
        present_TS = torch.nn.functional.pad(valid_TK, (0, 1), value=True)
    difference_TS = teacher_TS - old_TS
    if settings.logprob_diff_clip > 0:
        difference_TS = difference_TS.clamp(-settings.logprob_diff_clip, settings.logprob_diff_clip)
    weights_TS = torch.softmax(old_TS.masked_fill(~present_TS, -torch.inf), dim=-1)
    advantage_TS = difference_TS * weights_TS.masked_fill(~present_TS, 0.0)  # 0 where none is present
    return Kept(ids_TK=ids_TK, valid_TK=valid_TK, old_TS=old_TS, advantage_TS=advantage_TS)


def _loss(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The surrogates of the kept ids, summed [N]."""
    kept = _kept(targets)
    now_NS = now_NJ[:, 1:].masked_fill(~kept.valid_TK, 0.0)
    if settings.tail_bucket:
        now_NS = with_tail(now_NS, kept.valid_TK)
    eps_lo, eps_hi = settings.eps_lo, settings.eps_hi
    return ppo(kept.advantage_TS, now_NS, kept.old_TS, eps_lo=eps_lo, eps_hi=eps_hi).sum(dim=-1)


def _advantages(targets: TokenTargets, settings: ObjectiveSettings) -> tuple[Tensor, Tensor]:
    """Of the kept ids. The tail has none."""
    kept = _kept(targets)
    return kept.ids_TK, kept.advantage_TS[:, : kept.ids_TK.shape[-1]]


def _kept(targets: TokenTargets) -> Kept:
    if not isinstance(targets.kept, Kept):
        raise ValueError("top-K OPD needs the ids that learn and their advantages")
    return targets.kept


TERM = Term(loss=_loss, advantages=_advantages, keep=keep)
