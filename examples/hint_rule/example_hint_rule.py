"""`objective.hint_selection = "likeliest"`: learn from the teacher that finds the response most likely."""

from __future__ import annotations

from torch import Tensor

from afterwit.api.judging import HintRule
from afterwit.api.objective import Candidates


def score(candidates: Candidates) -> Tensor:
    """log pi_T of the sampled ids [H, T]; the largest sum over the tokens that train wins."""
    return candidates.sampled_teacher_HT


RULE = HintRule(score=score)
