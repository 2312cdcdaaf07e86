"""The teacher was read at temperature 1, the student at the 0.6 it had been sampled at.

Identical weights then disagree, and the policy is taught to be flatter than it is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from afterwit.chat_format.render import Renderer
from afterwit.objective import evaluate
from afterwit.objective.settings import ObjectiveSettings
from tests.fakes.judged_samples import a_sample
from tests.learning.updates import EXACT, items_of, moved
from tests.objective.batches import sample

SETTINGS = (
    {"objective": "topk_opd"},
    {"objective": "token_opd"},
    {"objective": "topk_distill", "K": 3},
    {"objective": "combine"},
)


@given(st.floats(0.2, 3), st.floats(0.2, 3))
def test_teacher_and_student_are_read_at_one_temperature(tau: float, other: float) -> None:
    made = sample(default_rng(0), hints=1, tau=tau, reward=0.0) | {"logits_old": None}
    for chosen in SETTINGS:
        made["logits_teacher"] = made["logits_current"][None]
        assert abs(evaluate([made], chosen | {"beta": 0}).gradients[0]).max() < 1e-15
        if abs(tau - other) > 0.05:
            made["logits_teacher"] = made["logits_teacher"] * tau / other
            assert abs(evaluate([made], chosen | {"beta": 0}).gradients[0]).max() > 1e-6


@pytest.mark.parametrize("head", ["fused", "plain"])
@pytest.mark.parametrize("objective", ["topk_opd", "token_opd", "topk_distill", "combine"])
def test_weights_that_teach_themselves_have_nothing_to_say_at_any_temperature(
    model: Path, renderer: Renderer, objective: str, head: str
) -> None:
    """The hint is empty, so the teacher reads what the student read."""
    chosen = ObjectiveSettings(objective=objective, w_rl=0.0, beta=0.0)
    items = items_of([a_sample(renderer, n, tau=tau) for n, tau in enumerate((0.6, 1.4))], renderer, chosen)
    unhinted = [replace(item, teachers=(item.student,), hints=("",)) for item in items]
    _, metrics = moved(model, model, unhinted, chosen, replace(EXACT, loss_backend=head))
    assert metrics["teacher_gap"] == 0.0
    assert metrics["grad_norm"] < 1e-12
