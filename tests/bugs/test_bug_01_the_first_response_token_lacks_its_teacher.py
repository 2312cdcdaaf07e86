"""The teacher's log-prob of the first response token was missing, or padded with a made-up number.

The last token of the hinted prompt predicts it: T response tokens have T rows of the teacher's logits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from afterwit.chat_format.render import Renderer
from afterwit.learning.passes import Row
from afterwit.objective.settings import ObjectiveSettings
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted
from tests.learning.updates import EXACT, frozen, items_of, moved
from tests.products import diagonal

OPD = ObjectiveSettings(objective="token_opd", beta=0.0)


def logprobs(model: torch.nn.Module, row: Row, tau: float) -> Tensor:
    """log pi(y) of each response token, [T], by transformers alone."""
    logits_SV = model(input_ids=torch.tensor([[*row.prompt, *row.response]])).logits[0]
    predicted_TV = torch.log_softmax(logits_SV[len(row.prompt) - 1 : -1] / tau, -1)
    return predicted_TV.gather(-1, torch.tensor(row.response)[:, None])[:, 0]


@pytest.mark.parametrize(("head", "tokens"), diagonal(["fused", "plain"], [1, 2, 5]))
def test_the_teacher_scores_every_response_token_from_the_first_on(
    model: Path, renderer: Renderer, tmp_path: Path, head: str, tokens: int
) -> None:
    student = reweighted(tmp_path, model, seed=3)
    sample = a_sample(renderer, 0, tokens=tokens, hints=("Read the file first.",), tau=0.6)
    (item,) = items_of([sample], renderer, OPD)
    _, metrics = moved(student, model, [item], OPD, replace(EXACT, loss_backend=head))
    teacher_T = logprobs(frozen(model), item.teachers[0], 0.6)
    student_T = logprobs(frozen(student), item.student, 0.6)
    assert len(teacher_T) == len(student_T) == tokens
    assert metrics["teacher_gap"] == pytest.approx((teacher_T - student_T).abs().mean().item(), rel=1e-9)
