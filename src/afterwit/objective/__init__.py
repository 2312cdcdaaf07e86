"""What the policy learns from a judged turn: pure functions of logits, described in `docs/algorithm.md`.

    settings                what is minimised; each default declared once
    advantage               the RL advantage of a reward (no torch)
    sample                  a sample without its logits, and the global denominators
    target: prepare()       phase one, without gradient: old policy and teachers, reduced to K ids a position
    hybrid: share()         phase two, with gradient: a sample's share of the batch's loss
    rl, token_opd, topk_opd, topk_distill, combine, entropy, anchor     the terms, one per file
    taught                  what a few ids of each token need, and the terms made of it

Importing this package imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from afterwit.objective.settings import ObjectiveSettings

if TYPE_CHECKING:
    from afterwit.objective.evaluation import Evaluation

__all__ = ["ObjectiveSettings", "evaluate"]


def evaluate(
    arrays: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    settings: ObjectiveSettings | Mapping[str, Any],
    *,
    running_mean: float = 0.0,
) -> Evaluation:
    """The loss of a batch, each term, and the gradient with respect to `logits_current`.

    Per sample, what is absent or `None` being left out:

        logits_current  [T, V]
        logits_old      [T, V]      else the current ones
        logits_teacher  [H, T, V]   else, or with H = 0, no hint
        logits_base     [T, V]      needed where beta > 0
        ids             [T]
        behaviour       [T]         log pi_b; else no off-policy correction
        reward, tau                 else 0 and 1
        mask            [T]         else every token trains
        group, basis, hint_lengths  as in `Sample` and `advantages`

    A sequence of such mappings, or one mapping of these names to lists. Settings by name or symbol. NumPy or
    torch in, the same kind and dtype out.
    """
    from afterwit.objective.evaluation import evaluate_batch  # torch: settings are read without it

    return evaluate_batch(arrays, settings, running_mean=running_mean)
