"""Samples without a hint were given a teacher that reads the plain prompt, which pulls the policy back to the
base, and were counted in the term's denominator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from afterwit.chat_format.render import Renderer
from afterwit.judging.hinted_prompts import Placement
from afterwit.learning.batch import Refused, build_items
from afterwit.lifecycle import Reason
from afterwit.objective import evaluate
from afterwit.objective.settings import ObjectiveSettings
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted
from tests.learning.updates import LIMITS, items_of, moved
from tests.objective.batches import sample


@pytest.mark.parametrize("objective", ["hybrid", "topk_opd", "token_opd", "topk_distill", "combine"])
def test_samples_without_a_hint_stay_out_of_the_opd_term(objective: str) -> None:
    hinted = sample(default_rng(1), reward=0.0)
    plain = sample(default_rng(2), reward=0.0, hints=0)
    settings = {"objective": objective, "beta": 0}
    alone, together = evaluate([hinted], settings), evaluate([hinted, plain], settings)
    assert together.loss == alone.loss
    assert not together.gradients[1].any()
    np.testing.assert_array_equal(together.gradients[0], alone.gradients[0])


def test_in_an_update_they_have_no_teacher_and_leave_the_opd_term_as_it_is(
    model: Path, renderer: Renderer, tmp_path: Path
) -> None:
    student = reweighted(tmp_path, model, seed=3)
    objective = ObjectiveSettings(beta=0.0)
    hinted, plain = items_of(
        [a_sample(renderer, 0), a_sample(renderer, 1, reward=1, hints=())], renderer, objective
    )
    assert plain.teachers == ()
    _, alone = moved(student, model, [hinted], objective)
    _, together = moved(student, model, [hinted, plain], objective)
    assert (together["opd_samples"], together["rl_samples"]) == (1, 2)
    assert together["opd"] == pytest.approx(alone["opd"], rel=1e-12)
    assert alone["opd"] != 0


def test_if_only_opd_learns_they_end_as_nothing_to_learn(renderer: Renderer) -> None:
    objective = ObjectiveSettings(objective="topk_opd")
    plain = a_sample(renderer, 0, reward=1, hints=())
    assert build_items([plain], renderer, Placement.LAST_USER, LIMITS, objective) == (
        [],
        [Refused(turn=plain.turn.id, reason=Reason.NO_SIGNAL)],
    )
