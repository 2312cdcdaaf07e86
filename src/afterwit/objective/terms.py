"""The terms of the loss that read a few ids of each token.

rl, token_opd, combine      read the sampled id
topk_opd                    corrects the K likeliest ids at every position
topk_distill                reverse KL to the hinted teacher over its K likeliest ids and a bin for all others

Entropy and the KL to a reference read the whole distribution (`logprobs`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from afterwit import plugins
from afterwit.objective.logprobs import KeptIds, TokenTargets, expected, with_tail
from afterwit.objective.settings import SUBSETS, ObjectiveSettings

if TYPE_CHECKING:
    from afterwit.objective.sample_loss import Candidates

LOG_RATIO_BOUND = 20.0
"""Nats. exp(20) is finite in every dtype used here and far outside any clipping range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A term that reads a few ids of each token."""

    advantages: Callable[[TokenTargets, ObjectiveSettings], tuple[Tensor, Tensor]]
    """(targets, settings) -> ids [N, J] and the advantage [N, J] that pushes each up or down."""
    loss: Callable[[Tensor, TokenTargets, ObjectiveSettings], Tensor]
    """(log pi [N, 1 + K] at the sampled id and the kept ids, targets, settings) -> loss [N]."""
    keep: Callable[[Candidates, Tensor, ObjectiveSettings], KeptIds] | None = None
    """(candidates, chosen hint [T], settings) -> what is kept of that hint's teacher; `None`: nothing."""


def of_sampled(targets: TokenTargets, advantage_N: Tensor) -> tuple[Tensor, Tensor]:
    """The sampled ids with their advantage, each [N, 1]."""
    return targets.ids_N[:, None], advantage_N[:, None]


def ppo(advantage: Tensor, current: Tensor, old: Tensor, *, eps_lo: float, eps_hi: float) -> Tensor:
    """max(-A rho, -A clip(rho, 1 - eps_lo, 1 + eps_hi)), rho = pi / pi_old, elementwise.

    PPO (Schulman et al. 2017, eq. 7) as a loss, with a range that may be asymmetric. `advantage` and `old`
    carry no gradient.
    """
    rho = torch.exp((current - old).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND))
    return torch.maximum(-advantage * rho, -advantage * rho.clamp(1 - eps_lo, 1 + eps_hi))


def _surrogate(advantage: Callable[[TokenTargets, ObjectiveSettings], Tensor], clip: str = "eps") -> Term:
    """The surrogate of the sampled ids with this detached advantage [N], times the off-policy correction.

    RL (GRPO form, Shao et al. 2024) broadcasts the verdict's reward over the response. Token OPD takes the
    teacher's opinion of each sampled token, and combine takes both as one advantage (OpenClaw-RL,
    arXiv:2603.10165).
    """

    def loss(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
        eps_lo, eps_hi = getattr(settings, f"{clip}_lo"), getattr(settings, f"{clip}_hi")
        advantage_N = advantage(targets, settings)
        surrogate_N = ppo(advantage_N, now_NJ[:, 0], targets.old_N, eps_lo=eps_lo, eps_hi=eps_hi)
        return targets.correction_N * surrogate_N

    return Term(
        loss=loss, advantages=lambda targets, settings: of_sampled(targets, advantage(targets, settings))
    )


RL = _surrogate(lambda targets, settings: targets.advantage_N)
TOKEN_OPD = _surrogate(lambda targets, settings: targets.gap_N, clip="token_eps")
COMBINE = _surrogate(
    lambda targets, settings: settings.w_opd * targets.gap_N + settings.w_rl * targets.advantage_N
)


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


def kept_ids(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> Kept:
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


def _topk_opd(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The surrogates of the kept ids, summed [N]: the hinted teacher corrects each (arXiv:2603.10165)."""
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


TOPK_OPD = Term(loss=_topk_opd, advantages=_advantages, keep=kept_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """The bins and what the teacher puts into them, without gradient; S is K + 1."""

    ids_TK: Tensor
    """The ids that have a bin of their own: the teacher's likeliest."""
    valid_TK: Tensor
    """False where the teacher's ids are padded: such an id has no bin."""
    teacher_TS: Tensor
    """log pi_T of each bin, the tail last."""


def bins(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> Bins:
    """The bins of the chosen hint's teacher."""
    ids_TK = found.pick(found.native_ids_HTK, hint_T)
    valid_TK = torch.ones_like(ids_TK, dtype=torch.bool)
    if found.native_valid_HTK is not None:
        valid_TK = found.pick(found.native_valid_HTK, hint_T)
    teacher_TS = with_tail(found.pick(found.native_teacher_HTK, hint_T), valid_TK)
    return Bins(ids_TK=ids_TK, valid_TK=valid_TK, teacher_TS=teacher_TS)


def _topk_distill(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """KL(pi || pi_T) over the bins [N], nats; the gradient runs through both factors.

    After SDFT (arXiv:2601.19897) and SDPO (arXiv:2601.20802). The bin closes the sum: over all bins it is a
    divergence of distributions, at least 0, and 0 only if both agree. Over the K ids alone, cut off or
    renormalised, the minimum would be a policy that gives them no probability.
    """
    if not isinstance(targets.kept, Bins):
        raise ValueError("top-K distillation needs the teacher's bins")
    now_NS = with_tail(now_NJ[:, 1:].masked_fill(~targets.kept.valid_TK, -torch.inf))
    return expected(now_NS.exp(), now_NS - targets.kept.teacher_TS)


TOPK_DISTILL = Term(
    loss=_topk_distill,
    advantages=lambda targets, settings: of_sampled(targets, targets.gap_N),  # a divergence itself has none
    keep=bins,
)


_TERMS = {
    "rl": RL,
    "token_opd": TOKEN_OPD,
    "combine": COMBINE,
    "topk_opd": TOPK_OPD,
    "topk_distill": TOPK_DISTILL,
}
TERMS = plugins.Table(plugins.TERMS, _TERMS)


def term_loss(name: str, now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The loss of each token [N] in one of the objective's terms, by its reported name.

    `now_NJ` are log pi at `targets.read_NJ`, with the gradient.
    """
    return TERMS[settings.terms[name]].loss(now_NJ, targets, settings)


def advantages(name: str, targets: TokenTargets, settings: ObjectiveSettings) -> tuple[Tensor, Tensor]:
    """Ids [N, J] that one of the objective's terms moves, and the advantage of each, without its weight."""
    return TERMS[settings.terms[name]].advantages(targets, settings)


def keep(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> KeptIds | None:
    """The ids kept of the chosen hint's teacher; `None`: the objective reads the sampled ids alone."""
    keeps = (TERMS[term].keep for term in settings.terms.values())
    first = next((each for each in keeps if each is not None), None)
    return None if first is None else first(found, hint_T, settings)
