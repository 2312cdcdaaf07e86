"""Phase one, without gradient: what the old policy and the teachers say, kept as a compact target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from afterwit.objective.candidates import Candidates, candidates, given_candidates
from afterwit.objective.choices import HINT_RULES
from afterwit.objective.logprobs import KeptIds, TokenTargets, at, logprobs, top_k
from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.surrogate import mismatch, truncated_weight
from afterwit.objective.terms import corrected, keep


@dataclass(frozen=True, slots=True, kw_only=True)
class HintTargets:
    """What the chosen hint's teacher says."""

    hint_T: Tensor
    """h*: the candidate that teaches at each position."""
    gap_T: Tensor
    """log pi_T^{h*}(y) - log pi_old(y): the advantage of sampled tokens in token OPD and combine."""
    overlap_T: Tensor
    """O[h*]: how many of the student's top-K ids are among that teacher's."""
    kept: KeptIds | None
    """`None`: only the sampled ids learn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What `sample_loss` needs of a sample besides its current logits. No V axis, no gradient."""

    old_T: Tensor
    """log pi_old(y)."""
    mismatch_T: Tensor | None
    """log pi_old(y) - log pi_b(y); `None`: the engine reported no log-probs."""
    weight_T: Tensor
    """The off-policy correction of sampled tokens; 1 without the engine's log-probs."""
    hint_targets: HintTargets | None
    """`None`: no OPD term."""


@torch.no_grad()
def prepare(
    sample: Sample,
    logits_old_TV: Tensor,
    teachers: Iterable[Tensor],
    settings: ObjectiveSettings,
) -> Target:
    """The target of a sample.

    `logits_old_TV` are the policy's at the start of the update: with one optimiser step per update, the
    current ones. `teachers` yields the logits [T, V] of each hint's teacher on the same ids, in the order of
    the hints; a generator keeps one of them in memory at a time. It is not read without an OPD term, or if
    the sample has a teacher's rows.
    """
    if len(logits_old_TV) != len(sample.ids_T):
        raise ValueError(f"{len(sample.ids_T)} ids but {len(logits_old_TV)} rows of logits")
    old_TV = logprobs(logits_old_TV, sample.tau)
    old_T = at(old_TV, sample.ids_T)
    mismatch_T = mismatch(sample, old_T, logits_old_TV)
    weight_T = torch.ones_like(old_T) if mismatch_T is None else truncated_weight(mismatch_T, settings.is_cap)
    hint_targets = None
    if settings.has_opd and sample.taught:
        found = _candidates(sample, logits_old_TV, old_TV, old_T, teachers, k=settings.ids_kept)
        hint_targets = hint_targets_of(sample, found, old_T, settings)
    return Target(old_T=old_T, mismatch_T=mismatch_T, weight_T=weight_T, hint_targets=hint_targets)


def _candidates(
    sample: Sample,
    logits_old_TV: Tensor,
    old_TV: Tensor,
    old_T: Tensor,
    teachers: Iterable[Tensor],
    *,
    k: int,
) -> Candidates:
    """Of the teachers that run, or of the rows of one that ran elsewhere."""
    if not sample.given:
        return candidates(sample, logits_old_TV, old_TV, teachers, k=k)
    student_TK = top_k(logits_old_TV, k)
    return given_candidates(
        sample.given,
        student_ids_TK=student_TK,
        student_old_TK=at(old_TV, student_TK),
        old_T=old_T,
        old_at=partial(at, old_TV),
    )


def hint_targets_of(
    sample: Sample, found: Candidates, old_T: Tensor, settings: ObjectiveSettings
) -> HintTargets:
    """Which candidate teaches, and what."""
    hint_T = HINT_RULES[settings.hint_selection].choose(found, sample.mask_T)
    return HintTargets(
        hint_T=hint_T,
        gap_T=found.pick(found.sampled_teacher_HT, hint_T) - old_T,
        overlap_T=found.pick(found.overlap_HT, hint_T),
        kept=keep(found, hint_T, settings),
    )


def token_targets(sample: Sample, target: Target, settings: ObjectiveSettings) -> TokenTargets:
    """What the tokens of one response learn from."""
    old_T, hint_targets = target.old_T, target.hint_targets
    weighted = corrected(settings.terms_of(sample.carried), settings)
    return TokenTargets(
        ids_N=sample.ids_T,
        old_N=old_T,
        correction_N=target.weight_T if weighted else torch.ones_like(old_T),
        advantage_N=torch.full_like(old_T, sample.advantage or 0.0),
        gap_N=torch.zeros_like(old_T) if hint_targets is None else hint_targets.gap_T,
        kept=None if hint_targets is None else hint_targets.kept,
    )
