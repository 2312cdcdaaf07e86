"""The objectives against an independent float64 implementation, and that one against finite differences."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as budget

from afterwit.objective import evaluate

from . import reference
from .batches import CELLS, batches, sample
from .batches import settings as objective_settings

MODEST = budget(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_agrees(samples, settings, *, tolerance):
    loss, terms, gradients = reference.evaluate(samples, settings)
    got = evaluate(samples, settings)
    assert got.loss == pytest.approx(loss, abs=tolerance, rel=tolerance)
    assert {name: float(value) for name, value in got.terms.items()} == pytest.approx(
        terms, abs=tolerance, rel=tolerance
    )
    for mine, theirs in zip(got.gradients, gradients, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=tolerance * max(1, abs(theirs).max()), rtol=0)


def as_fp32(made):
    return {
        name: a.astype(np.float32) if getattr(a, "dtype", None) == np.float64 else a
        for name, a in made.items()
    }


@MODEST
@given(batches(), objective_settings())
def test_loss_terms_and_gradients_are_those_of_the_reference(samples, settings):
    # 1 - the kept mass cancels digits where the kept ids hold nearly everything
    assert_agrees(samples, settings, tolerance=1e-11 if settings["tail_bucket"] else 1e-12)


@MODEST
@given(batches(), objective_settings())
def test_single_precision_agrees_to_5e_6(samples, settings):
    assert_agrees([as_fp32(made) for made in samples], settings | {"tail_bucket": False}, tolerance=5e-6)


@pytest.mark.parametrize(("selection", "subset"), CELLS)
@pytest.mark.parametrize("tail_bucket", [False, True])
def test_every_cell_of_selection_and_subset(selection, subset, tail_bucket):
    rng = np.random.default_rng(7)
    samples = [sample(rng, hints=hints, vocabulary=12, tau=0.6, reward=0.0) for hints in (3, 0, 1)]
    settings = {"hint_selection": selection, "subset": subset, "tail_bucket": tail_bucket, "beta": 0}
    assert_agrees(samples, settings, tolerance=1e-12)


@pytest.mark.parametrize("objective", ["hybrid", "topk_opd", "token_opd", "rl"])
@pytest.mark.parametrize("tail_bucket", [False, True])
def test_the_gradient_is_the_slope_of_the_loss(objective, tail_bucket):
    rng = np.random.default_rng(3)
    samples = [sample(rng, tau=0.6, drift=0.1), sample(rng, memory=True)]
    settings = {
        "objective": objective,
        "tail_bucket": tail_bucket,
        "c_H": 0.1,
        "beta": 0.5,
        "memory_weight": 0.5,
    }
    gradients = evaluate(samples, settings).gradients
    step = 1e-6
    for made, gradient in zip(samples, gradients, strict=True):
        for place in np.ndindex(gradient.shape):
            centre = made["logits_current"][place]
            made["logits_current"][place] = centre + step
            above = reference.evaluate(samples, settings)[0]
            made["logits_current"][place] = centre - step
            below = reference.evaluate(samples, settings)[0]
            made["logits_current"][place] = centre
            assert gradient[place] == pytest.approx((above - below) / (2 * step), abs=1e-8)
