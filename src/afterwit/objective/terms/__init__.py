"""The terms of the loss, one file each. `TERMS` holds those that a few ids of each token make up.

rl, token_opd, combine      read the sampled id
topk_opd, topk_distill      read ids kept of the chosen teacher
entropy, reference_kl       read the whole distribution
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms import combine, rl, token_opd, topk_distill, topk_opd
from afterwit.objective.terms.entropy import entropy
from afterwit.objective.terms.reference_kl import reference_kl
from afterwit.objective.terms.term import Term
from afterwit.objective.token_targets import KeptIds, TokenTargets

if TYPE_CHECKING:
    from afterwit.objective.candidates import Candidates
    from afterwit.objective.sample import Sample
    from afterwit.objective.target import Target

__all__ = ["TERMS", "Term", "advantages", "entropy", "keep", "reference_kl", "term_loss", "token_targets"]

TERMS = {
    "rl": rl.TERM,
    "token_opd": token_opd.TERM,
    "combine": combine.TERM,
    "topk_opd": topk_opd.TERM,
    "topk_distill": topk_distill.TERM,
}


def term_loss(name: str, now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The loss of each token [N] in one of the objective's terms, by its reported name.

    `now_NJ` are log pi at `targets.read_NJ`, with the gradient.
    """
    return _term(name, settings).loss(now_NJ, targets, settings)


def advantages(name: str, targets: TokenTargets, settings: ObjectiveSettings) -> tuple[Tensor, Tensor]:
    """Ids [N, J] that one of the objective's terms moves, and the advantage of each, without its weight."""
    return _term(name, settings).advantages(targets, settings)


def keep(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> KeptIds | None:
    """What the objective keeps of the chosen hint's teacher; `None`: it reads the sampled ids alone."""
    keeps = [term.keep for name in settings.terms if (term := _term(name, settings)).keep is not None]
    return keeps[0](found, hint_T, settings) if keeps else None


def token_targets(sample: Sample, target: Target, settings: ObjectiveSettings) -> TokenTargets:
    """What the tokens of one response learn from."""
    old_T, hint_targets = target.old_T, target.hint_targets
    corrected = any(_term(name, settings).corrected for name in sample.carries(settings))
    return TokenTargets(
        ids_N=sample.ids_T,
        old_N=old_T,
        correction_N=target.weight_T if corrected else torch.ones_like(old_T),
        advantage_N=torch.full_like(old_T, sample.advantage or 0.0),
        gap_N=torch.zeros_like(old_T) if hint_targets is None else hint_targets.gap_T,
        kept=None if hint_targets is None else hint_targets.kept,
    )


def _term(name: str, settings: ObjectiveSettings) -> Term:
    return TERMS[settings.terms[name]]
