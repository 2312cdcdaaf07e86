"""The terms of the loss that read a few ids of each token.

rl, token_opd, combine      read the sampled id (`sampled`)
topk_opd, topk_distill      read ids kept of the chosen teacher, each in a file of its own

Entropy and the KL to a reference read the whole distribution (`logprobs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from afterwit import plugins
from afterwit.objective.logprobs import KeptIds, TokenTargets
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms import sampled, topk_distill, topk_opd
from afterwit.objective.terms.term import Term

if TYPE_CHECKING:
    from afterwit.objective.target import Candidates

__all__ = ["TERMS", "Term", "advantages", "keep", "term_loss"]

_TERMS = {
    "rl": sampled.RL,
    "token_opd": sampled.TOKEN_OPD,
    "combine": sampled.COMBINE,
    "topk_opd": topk_opd.TERM,
    "topk_distill": topk_distill.TERM,
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
