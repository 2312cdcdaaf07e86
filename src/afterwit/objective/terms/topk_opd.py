"""Top-K OPD: the hinted teacher corrects the K likeliest ids at every position (arXiv:2603.10165)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.objective.candidates import Candidates
from afterwit.objective.hint_selection import pick, shared
from afterwit.objective.logprobs import with_tail
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.surrogate import ppo


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The ids that learn and what they are taught, without gradient; S is K, or K + 1 with the tail."""

    ids_TK: Tensor
    valid_TK: Tensor
    """False where the overlap lacks an id, or pi_old gives it no probability: such an element has advantage 0
    and moves nothing."""
    old_TS: Tensor
    """log pi_old."""
    advantage_TS: Tensor
    """clip(log pi_T - log pi_old, -C, C) * w."""


def keep(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> Kept:
    """The targets of the chosen hint: the subset S, its weights w and its advantages."""
    ids_TK, member_TK, old_TK, teacher_TK = _members(found, hint_T, settings)
    valid_TK = member_TK & (old_TK > -torch.inf)
    old_TS, teacher_TS = (known_TK.masked_fill(~valid_TK, 0.0) for known_TK in (old_TK, teacher_TK))
    present_TS = valid_TK
    if settings.tail_bucket:
        old_TS, teacher_TS = with_tail(old_TS, valid_TK), with_tail(teacher_TS, valid_TK)
        present_TS = torch.nn.functional.pad(valid_TK, (0, 1), value=True)
    difference_TS = teacher_TS - old_TS
    if settings.diff_clip > 0:
        difference_TS = difference_TS.clamp(-settings.diff_clip, settings.diff_clip)
    advantage_TS = difference_TS * _weights(old_TS, present_TS)
    return Kept(ids_TK=ids_TK, valid_TK=valid_TK, old_TS=old_TS, advantage_TS=advantage_TS)


def topk_opd_loss(current_TK: Tensor, kept: Kept, settings: ObjectiveSettings) -> Tensor:
    """Loss [T]: the surrogates of the kept elements, summed; `current_TK` carries the gradient."""
    current_TS = current_TK.masked_fill(~kept.valid_TK, 0.0)
    if settings.tail_bucket:
        current_TS = with_tail(current_TS, kept.valid_TK)
    eps_lo, eps_hi = settings.eps_lo, settings.eps_hi
    return ppo(kept.advantage_TS, current_TS, kept.old_TS, eps_lo=eps_lo, eps_hi=eps_hi).sum(dim=-1)


def _members(
    found: Candidates, hint_T: Tensor, settings: ObjectiveSettings
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The subset's ids, which of them are in it, log pi_old and log pi_T at them; each [T, K]."""
    native_TK = pick(found.native_ids_HTK, hint_T)
    if settings.subset == "teacher":
        old_TK, teacher_TK = found.old_at(native_TK), pick(found.native_teacher_HTK, hint_T)
        return native_TK, torch.ones_like(native_TK, dtype=torch.bool), old_TK, teacher_TK
    ids_TK = found.student_ids_TK
    valid_TK = torch.ones_like(ids_TK, dtype=torch.bool)
    if settings.subset == "overlap":
        valid_TK = shared(ids_TK, native_TK)
    return ids_TK, valid_TK, found.student_old_TK, pick(found.student_teacher_HTK, hint_T)


def _weights(old_TS: Tensor, present_TS: Tensor) -> Tensor:
    """Softmax of log pi_old over the elements that are present; 0 elsewhere, and everywhere if none is."""
    weights_TS = torch.softmax(old_TS.masked_fill(~present_TS, -torch.inf), dim=-1)
    return weights_TS.masked_fill(~present_TS, 0.0)
