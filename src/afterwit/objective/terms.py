"""The terms of the loss, and the log-probs that they are made of.

rl, token_opd, combine      read the sampled id
topk_opd                    corrects the K likeliest ids at every position
topk_distill                reverse KL to the hinted teacher over its K likeliest ids and a bin for all others
entropy, reference_kl       read the whole distribution

Axes: T tokens of a response, N tokens of several, V vocabulary, K kept ids, J ids that are read, S the kept
ids and perhaps the tail, H hints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from afterwit import plugins
from afterwit.objective.settings import SUBSETS, ObjectiveSettings, shape_of

if TYPE_CHECKING:
    from afterwit.objective.sample import Candidates

TAIL_CEILING = -1e-7
"""Nats. The kept ids never hold more than exp(-1e-7), so the tail's log-prob stays finite."""

LOG_RATIO_BOUND = 20.0
"""Nats. exp(20) is finite in every dtype used here and far outside any clipping range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The chosen teacher at the ids that a term reads, without gradient; S is K, or K + 1 with the tail."""

    ids_TK: Tensor
    valid_TK: Tensor
    """False for an id that does not count: padding, outside the subset, or impossible under pi_old."""
    teacher_TS: Tensor
    """log pi_T."""
    old_TS: Tensor | None = None
    """log pi_old, for a term that reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTargets:
    """The targets of tokens, without gradient."""

    ids_N: Tensor
    """The sampled ids."""
    old_N: Tensor
    """log pi_old of the sampled ids."""
    correction_N: Tensor
    """The off-policy correction min(pi_old / pi_b, is_cap) of sampled tokens; 1 without the engine's
    log-probs."""
    advantage_N: Tensor
    """The RL advantage, 0 without one."""
    gap_N: Tensor
    """log pi_T - log pi_old of the sampled ids, 0 without a hint."""
    kept: Kept | None
    """`None`: no token is distilled at kept ids."""

    @property
    def read_NJ(self) -> Tensor:
        """The ids whose log-probs the terms read: the sampled one, then the kept ones."""
        sampled_N1 = self.ids_N.unsqueeze(-1)
        return sampled_N1 if self.kept is None else torch.cat([sampled_N1, self.kept.ids_TK], dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A term that reads a few ids of each token."""

    advantages: Callable[[TokenTargets, ObjectiveSettings], tuple[Tensor, Tensor]]
    """(targets, settings) -> ids [N, J] and the advantage [N, J] that pushes each up or down."""
    loss: Callable[[Tensor, TokenTargets, ObjectiveSettings], Tensor]
    """(log pi [N, 1 + K] at the sampled id and the kept ids, targets, settings) -> loss [N]."""
    keep: Callable[[Candidates, Tensor, ObjectiveSettings], Kept] | None = None
    """(candidates, chosen hint [T], settings) -> what is kept of that hint's teacher; `None`: nothing."""

    def checked(self, now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
        """`loss`. ValueError if it is not [N]: broadcasting would hide it."""
        loss_N = self.loss(now_NJ, targets, settings)
        if (shape := shape_of(loss_N)) != [len(targets.ids_N)]:
            raise ValueError(f"a term's loss is {shape}, but must be [{len(targets.ids_N)}]")
        return loss_N

    def moved(self, targets: TokenTargets, settings: ObjectiveSettings) -> tuple[Tensor, Tensor]:
        """`advantages`. ValueError unless the ids and their advantages are both [N, J]."""
        ids_NJ, advantage_NJ = self.advantages(targets, settings)
        ids, advantage = shape_of(ids_NJ), shape_of(advantage_NJ)
        if ids != advantage or len(ids) != 2 or ids[0] != len(targets.ids_N):
            raise ValueError(
                f"a term has ids {ids} with advantages {advantage}, not both [{len(targets.ids_N)}, J]"
            )
        return ids_NJ, advantage_NJ


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


def kept_ids(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> Kept:
    """The chosen hint's teacher on the subset S."""
    ids_TK, old_TK, teacher_TK, member_TK = SUBSETS[settings.subset](found, hint_T)
    valid_TK = old_TK > -torch.inf
    if member_TK is not None:
        valid_TK = valid_TK & member_TK
    old_TS, teacher_TS = (known_TK.masked_fill(~valid_TK, 0.0) for known_TK in (old_TK, teacher_TK))
    if settings.tail_bucket:
        old_TS, teacher_TS = with_tail(old_TS, valid_TK), with_tail(teacher_TS, valid_TK)
    return Kept(ids_TK=ids_TK, valid_TK=valid_TK, old_TS=old_TS, teacher_TS=teacher_TS)


def kept_advantages(kept: Kept, settings: ObjectiveSettings) -> Tensor:
    """clip(log pi_T - log pi_old, -C, C) * w [T, S], w = softmax(log pi_old) over S; 0 at an invalid id."""
    old_TS = _old(kept)
    difference_TS = kept.teacher_TS - old_TS
    if settings.logprob_diff_clip > 0:
        difference_TS = difference_TS.clamp(-settings.logprob_diff_clip, settings.logprob_diff_clip)
    tail = old_TS.shape[-1] - kept.valid_TK.shape[-1]
    absent_TS = ~torch.nn.functional.pad(kept.valid_TK, (0, tail), value=True)
    weights_TS = torch.softmax(old_TS.masked_fill(absent_TS, -torch.inf), dim=-1)
    return difference_TS * weights_TS.masked_fill(absent_TS, 0.0)  # 0 where none is present


def _topk_opd(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The surrogates of the kept ids, summed [N]: the hinted teacher corrects each (arXiv:2603.10165)."""
    kept = _kept(targets)
    now_NS = now_NJ[:, 1:].masked_fill(~kept.valid_TK, 0.0)
    if settings.tail_bucket:
        now_NS = with_tail(now_NS, kept.valid_TK)
    advantage_NS = kept_advantages(kept, settings)
    eps_lo, eps_hi = settings.eps_lo, settings.eps_hi
    return ppo(advantage_NS, now_NS, _old(kept), eps_lo=eps_lo, eps_hi=eps_hi).sum(dim=-1)


def _advantages(targets: TokenTargets, settings: ObjectiveSettings) -> tuple[Tensor, Tensor]:
    """Of the kept ids. The tail has none."""
    kept = _kept(targets)
    return kept.ids_TK, kept_advantages(kept, settings)[:, : kept.ids_TK.shape[-1]]


def _kept(targets: TokenTargets) -> Kept:
    if targets.kept is None:
        raise ValueError("a top-K term needs the teacher's log-probs at kept ids")
    return targets.kept


def _old(kept: Kept) -> Tensor:
    if kept.old_TS is None:
        raise ValueError("top-K OPD needs log pi_old at the kept ids")
    return kept.old_TS


TOPK_OPD = Term(loss=_topk_opd, advantages=_advantages, keep=kept_ids)


def bins(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> Kept:
    """The chosen hint's teacher on its own likeliest ids, each a bin, and the tail."""
    ids_TK = found.pick(found.native_ids_HTK, hint_T)
    valid_TK = torch.ones_like(ids_TK, dtype=torch.bool)
    if found.native_valid_HTK is not None:
        valid_TK = found.pick(found.native_valid_HTK, hint_T)
    teacher_TS = with_tail(found.pick(found.native_teacher_HTK, hint_T), valid_TK)
    return Kept(ids_TK=ids_TK, valid_TK=valid_TK, teacher_TS=teacher_TS)


def _topk_distill(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """KL(pi || pi_T) over the bins [N], nats; the gradient runs through both factors.

    After SDFT (arXiv:2601.19897) and SDPO (arXiv:2601.20802). The bin closes the sum: over all bins it is a
    divergence of distributions, at least 0, and 0 only if both agree. Over the K ids alone, cut off or
    renormalised, the minimum would be a policy that gives them no probability.
    """
    kept = _kept(targets)
    now_NS = with_tail(now_NJ[:, 1:].masked_fill(~kept.valid_TK, -torch.inf))
    return expected(now_NS.exp(), now_NS - kept.teacher_TS)


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
TERMS = plugins.Table(plugins.TERMS, Term, _TERMS)


def term_loss(name: str, now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The loss of each token [N] in one of the objective's terms, by its reported name.

    `now_NJ` are log pi at `targets.read_NJ`, with the gradient.
    """
    return TERMS[settings.terms[name]].checked(now_NJ, targets, settings)


def advantages(name: str, targets: TokenTargets, settings: ObjectiveSettings) -> tuple[Tensor, Tensor]:
    """Ids [N, J] that one of the objective's terms moves, and the advantage of each, without its weight."""
    return TERMS[settings.terms[name]].moved(targets, settings)


def keep(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> Kept | None:
    """The ids kept of the chosen hint's teacher; `None`: the objective reads the sampled ids alone."""
    keeps = (TERMS[term].keep for term in settings.terms.values())
    first = next((each for each in keeps if each is not None), None)
    return None if first is None else first(found, hint_T, settings)


def full_precision(logits: Tensor) -> Tensor:
    """The logits, half precision raised to fp32; fp32 and fp64 as they are."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def same_shape(logits_TV: Tensor, what: str, other_TV: Tensor) -> None:
    """ValueError unless both logits have the same shape: broadcasting would hide it."""
    if other_TV.shape != logits_TV.shape:
        raise ValueError(f"logits {list(logits_TV.shape)} but {what} {list(other_TV.shape)}")


def logprobs(logits_TV: Tensor, tau: float) -> Tensor:
    """log softmax(logits / tau) over the vocabulary, [T, V]."""
    return torch.log_softmax(full_precision(logits_TV) / tau, dim=-1)


def at(logprobs_TV: Tensor, ids: Tensor) -> Tensor:
    """The log-probs at ids [T] or [T, K], in that shape."""
    if ids.dim() == 1:
        return logprobs_TV.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    return logprobs_TV.gather(-1, ids)


def top_k(logits_TV: Tensor, k: int) -> Tensor:
    """Ids [T, min(k, V)] of the largest logits, descending, equal logits by the lower id.

    `torch.topk` leaves open which of equals it returns, and in what order. In rows whose k-th and next value
    are equal the set is settled first; then, in all rows, the order.
    """
    size = logits_TV.shape[-1]
    k = min(k, size)
    values, ids = torch.topk(logits_TV, min(k + 1, size))
    ids = ids[:, :k]
    tied_T = values[:, k - 1] == values[:, -1]
    if k < size and bool(tied_T.any()):
        ids[tied_T] = _lower_of_equals(logits_TV[tied_T], values[tied_T, k - 1 : k], k)
    ascending = ids.sort(dim=-1).values
    order = logits_TV.gather(-1, ascending).sort(dim=-1, descending=True, stable=True).indices
    return ascending.gather(-1, order)


def _lower_of_equals(logits_TV: Tensor, edge_T1: Tensor, k: int) -> Tensor:
    """Ids [T, k] of all logits above the edge and, for the places left, of the first ones equal to it."""
    size = logits_TV.shape[-1]
    ids = torch.arange(size, device=logits_TV.device)
    rank_TV = torch.where(logits_TV > edge_T1, ids - size, torch.where(logits_TV == edge_T1, ids, size))
    return rank_TV.topk(k, largest=False).values.remainder(size)


def expected(probabilities: Tensor, values: Tensor) -> Tensor:
    """Sum over the last axis of p * value, where 0 log 0 is 0."""
    return (probabilities * values.masked_fill(probabilities == 0, 0.0)).sum(dim=-1)


def entropy(logprobs_TV: Tensor) -> Tensor:
    """H(pi) [T], nats; a bonus if `entropy_coef` is above 0."""
    return -expected(logprobs_TV.exp(), logprobs_TV)


def reference_kl(logprobs_TV: Tensor, reference_TV: Tensor) -> Tensor:
    """KL(pi || reference) [T], nats: how far the policy has moved from frozen weights on its own responses.

    Exact over the vocabulary; the gradient runs through both factors.
    """
    return expected(logprobs_TV.exp(), logprobs_TV - reference_TV)


def with_tail(logprobs_TK: Tensor, valid_TK: Tensor | None = None) -> Tensor:
    """The log-probs with one more column [T, K + 1]: that of all ids but these, or but the valid ones.

    The tail is log(1 - sum of exp). `TAIL_CEILING` keeps it finite; where it applies there is no gradient.
    """
    counted_TK = logprobs_TK if valid_TK is None else logprobs_TK.masked_fill(~valid_TK, -torch.inf)
    held_T1 = counted_TK.logsumexp(dim=-1, keepdim=True)
    tail_T1 = torch.log(-torch.expm1(held_T1.clamp(max=TAIL_CEILING)))
    return torch.cat([logprobs_TK, tail_T1], dim=-1)
