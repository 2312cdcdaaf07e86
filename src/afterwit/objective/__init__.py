"""The loss of judged turns: pure functions of logits, described in `docs/algorithm.md`.

    settings            what is minimised: tables of objectives and of rules that choose a hint; each default
    sample              a sample without its logits, its RL advantage, and what each term is divided by;
                        phase one, without gradient: old policy and teachers, reduced to K ids a position;
                        phase two, with gradient: a sample's part of the batch's loss
    terms               the terms, their table, and the log-probs that they are made of
    evaluation          the loss of named arrays, by all of this

Importing this package, or any of its tables, does not import torch.
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

    Per sample; what is absent or `None` is left out:

        logits_current  [T, V]
        logits_old      [T, V]      else the current ones
        logits_teacher  [H, T, V]   else, or with H = 0, no hint
        logits_base     [T, V]      of the reference; needed if beta > 0
        ids             [T]
        behaviour       [T]         log pi_b; else no off-policy correction
        reward, tau                 else 0 and 1
        mask            [T]         else every token trains
        group                       names the prompt; else a group baseline leaves the reward alone
        basis                       of behaviour, as in `Sample`; else processed
        hint_lengths    [H]         characters, ascending; else hints grow longer

    A sequence of such mappings, or one mapping of these names to lists. Settings by name or symbol. NumPy or
    torch in, the same kind and dtype out.
    """
    from afterwit.objective.evaluation import evaluate_batch  # torch: settings are read without it

    return evaluate_batch(arrays, settings, running_mean=running_mean)
