"""The `k1` estimate of a KL divergence, log pi(y) - log pi_T(y), was used as a loss: in its expected gradient
the teacher cancels. Whatever distils must move differently under another teacher."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from afterwit.objective import evaluate
from tests.objective.batches import sample

OPD = {"objective": "topk_opd", "beta": 0}


@pytest.mark.parametrize(
    "settings",
    [
        OPD,
        OPD | {"objective": "token_opd"},
        OPD | {"objective": "topk_distill", "K": 3},
        OPD | {"objective": "combine"},
        OPD | {"subset": "overlap", "K": 7},
    ],
)
def test_swapping_the_teacher_changes_the_gradient(settings: dict[str, object]) -> None:
    made = sample(default_rng(0), hints=2) | {"logits_old": None}
    swapped = made | {"logits_teacher": made["logits_teacher"][::-1].copy()}
    settings = settings | {"hint_selection": "shortest", "C": 0}
    first, second = evaluate([made], settings), evaluate([swapped], settings)
    assert abs(first.gradients[0] - second.gradients[0]).max() > 1e-3


@pytest.mark.parametrize("objective", ["topk_opd", "token_opd", "topk_distill", "combine"])
def test_the_expected_gradient_is_that_of_the_divergence_from_the_teacher(objective: str) -> None:
    """Averaged over y ~ pi, by enumerating the vocabulary, it is the gradient of KL(pi || pi_T)."""
    made = sample(default_rng(0), hints=1, tokens=1, reward=0.0) | {"logits_old": None, "behaviour": None}
    pi_V = torch.softmax(torch.tensor(made["logits_current"][0]), -1).numpy()
    settings = {"objective": objective, "beta": 0, "C": 0, "K": len(pi_V)}
    gradients_VV = [evaluate([made | {"ids": [v]}], settings).gradients[0][0] for v in range(len(pi_V))]
    as_base = made | {"logits_base": made["logits_teacher"][0]}
    reverse_kl_V = evaluate([as_base], {"objective": "rl", "w_RL": 0, "beta": 1}).gradients[0][0]
    np.testing.assert_allclose(pi_V @ np.stack(gradients_VV), reverse_kl_V, atol=1e-12)
    assert abs(reverse_kl_V).max() > 1e-2
