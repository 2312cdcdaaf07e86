"""A reverse KL over the teacher's top-K ids, truncated or renormalised.

It is smallest where the student has left these ids: the sum lacks a bin for all others.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from afterwit.objective import evaluate
from tests.objective.batches import toward


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.lists(st.floats(0, 12), min_size=2, max_size=6, unique=True),
)
def test_mass_that_leaves_the_kept_ids_is_never_rewarded(seed: int, k: int, shifts: list[float]) -> None:
    """Move ever more mass away, from the teacher on: that minimises a truncated or renormalised sum."""
    teacher = 2 * default_rng(seed).normal(size=8)
    outside = np.argsort(-teacher, kind="stable")[k:]
    losses = []
    for shift in (*sorted(shifts), 13.0):
        student = np.copy(teacher)
        student[outside] += shift
        loss, slopes = toward(student, teacher, K=k)
        losses.append(loss)
        assert slopes[outside].sum() >= -1e-12
    assert all(one <= later + 1e-12 for one, later in pairwise(losses))
    assert losses[-1] > 0


def test_a_student_that_has_emptied_the_support_is_led_back_to_it() -> None:
    teacher = default_rng(2).normal(size=8)
    kept = np.argsort(-teacher, kind="stable")[:3]
    student = np.copy(teacher)
    student[kept] -= 8.0
    loss, slopes = toward(student, teacher, K=3)
    pi, pi_T = (torch.softmax(torch.tensor(row), -1).numpy()[kept] for row in (student, teacher))
    truncated = (pi * np.log(pi / pi_T)).sum()
    renormalised = (pi / pi.sum() * np.log(pi / pi.sum() / (pi_T / pi_T.sum()))).sum()
    assert truncated < 0
    assert renormalised == pytest.approx(0, abs=1e-12)
    assert loss > 0.5
    assert (slopes[kept] < 0).all()


def test_descent_ends_with_the_teachers_mass_in_every_bin() -> None:
    rng = default_rng(5)
    teacher, student = rng.normal(size=12), 2 * rng.normal(size=12)
    kept = np.argsort(-teacher, kind="stable")[:4]
    for _ in range(250):
        loss, slopes = toward(student, teacher, K=4)
        student = student - 4 * slopes
    pi, pi_T = (torch.softmax(torch.tensor(row), -1).numpy()[kept] for row in (student, teacher))
    assert loss < 1e-9
    np.testing.assert_allclose(pi, pi_T, atol=1e-5)


@pytest.mark.parametrize("offset", [-3.0, 3.0])
def test_top_k_opd_on_the_teachers_ids_ends_with_the_teachers_mass_on_them(offset: float) -> None:
    """Step by step, from a student with too little on them and from one with too much."""
    teacher_V = default_rng(4).normal(size=10)
    kept = np.argsort(-teacher_V, kind="stable")[:4]
    student_V = default_rng(5).normal(size=10)
    student_V[kept] += offset
    for _ in range(150):
        arrays = {"logits_current": student_V[None], "logits_teacher": teacher_V[None, None], "ids": [0]}
        chosen = {"objective": "topk_opd", "subset": "teacher", "K": 4, "C": 0, "beta": 0}
        student_V = student_V - 4 * evaluate([arrays], chosen).gradients[0][0]
    mass, taught = (torch.softmax(torch.tensor(row), -1).numpy()[kept] for row in (student_V, teacher_V))
    np.testing.assert_allclose(mass, taught, atol=1e-4)
