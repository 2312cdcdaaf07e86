"""The objectives against an independent float64 implementation, and that one against finite differences."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.objective import evaluate
from afterwit.objective.settings import OBJECTIVES as TABLE
from afterwit.objective.terms import TERMS

from . import reference
from .batches import OBJECTIVES, SELECTIONS, SUBSETS, batches, sample
from .batches import settings as objective_settings
from .reference_tokens import log_softmax, log_tail, top_ids

WITH_TAIL = ("hybrid", "topk_opd")
"""Objectives of which `tail_bucket` changes the loss."""
MEANS = st.sampled_from((0.0, 0.25, -0.5))


def assert_agrees(samples, settings, *, tolerance, mean=0.0):
    loss, terms, gradients = reference.evaluate(samples, settings, mean)
    got = evaluate(samples, settings, running_mean=mean)
    assert got.loss == pytest.approx(loss, abs=tolerance, rel=tolerance)
    assert {name: float(value) for name, value in got.terms.items()} == pytest.approx(
        terms, abs=tolerance, rel=tolerance
    )
    for mine, theirs in zip(got.gradients, gradients, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=tolerance * max(1, abs(theirs).max()), rtol=0)


def tail_ratio(samples, settings):
    """The largest pi / pi_T of a tail bin of top-K distillation; 0 of other objectives.

    The tail is 1 less the kept mass: rounding puts that error, over the teacher's tail, into its log-prob.
    """
    if settings["objective"] != "topk_distill":
        return 0.0
    k, found = settings.get("K") or 50, [0.0]
    for made in samples:
        tau = 1.0 if made.get("tau", 1.0) < 0.05 else made.get("tau", 1.0)
        for taught in made.get("logits_teacher", ()):
            for now, goal in zip(made["logits_current"], taught, strict=True):
                tails = [
                    log_tail([log_softmax(row, tau)[v] for v in top_ids(goal, k)])[0] for row in (now, goal)
                ]
                found.append(np.exp(tails[0] - tails[1]))
    return max(found)


def as_fp32(made):
    return {
        name: a.astype(np.float32) if getattr(a, "dtype", None) == np.float64 else a
        for name, a in made.items()
    }


@given(batches(), objective_settings(), MEANS)
def test_loss_terms_and_gradients_are_those_of_the_reference(samples, settings, mean):
    # 1 - the kept mass cancels digits where the kept ids hold nearly everything
    exact = 1e-11 if settings["tail_bucket"] else 1e-12
    assert_agrees(samples, settings, tolerance=exact + 1e-14 * tail_ratio(samples, settings), mean=mean)


def test_every_term_of_the_loss_is_stated_a_second_time():
    compared = {file for name in OBJECTIVES for file in TABLE[name].terms.values()}
    assert compared == set(TERMS), "state an objective with the term in tests/objective/reference.py"


@given(batches(), objective_settings(), MEANS)
def test_single_precision_agrees_to_5e_6(samples, settings, mean):
    samples = [as_fp32(made) for made in samples]
    tolerance = 5e-6 + 1e-6 * tail_ratio(samples, settings)
    assert_agrees(samples, settings | {"tail_bucket": False}, tolerance=tolerance, mean=mean)


CELLS = list(
    product(SUBSETS, ("component", "batch"), ("none", "running", "group"), ("all", "routed"), (False, True))
)
APART = 23
"""Steps from a cell that is compared to the next."""


def cells_of(objective, selection):
    """A few cells, so that with each objective, and with each rule, every pair of values meets."""
    first = 9 * (OBJECTIVES.index(objective) + SELECTIONS.index(selection))
    return CELLS[first % APART :: APART]


def test_every_pair_of_settings_meets_with_each_objective_and_with_each_rule():
    for of_one in (
        *({cell for rule in SELECTIONS for cell in cells_of(name, rule)} for name in OBJECTIVES),
        *({cell for name in OBJECTIVES for cell in cells_of(name, rule)} for rule in SELECTIONS),
    ):
        for one, other in combinations(range(len(CELLS[0])), 2):
            assert {(cell[one], cell[other]) for cell in of_one} == {
                (cell[one], cell[other]) for cell in CELLS
            }


@pytest.mark.parametrize(("objective", "selection"), product(OBJECTIVES, SELECTIONS))
def test_the_cells_of_the_settings(objective, selection):
    rng = np.random.default_rng(7)
    samples = [
        sample(rng, hints=hints, vocabulary=9, tau=0.6, reward=reward, group=group)
        for hints, reward, group in (
            *((3, -1.0, "p"), (0, 1.0, "p"), (2, 1.0, "p"), (1, 0.0, "p"), (0, 0.0, "p")),
            *((1, 1.0, "agrees"), (0, 1.0, "agrees")),
        )
    ]
    for subset, aggregation, baseline, routing, tail_bucket in cells_of(objective, selection):
        settings = {
            "objective": objective,
            "hint_selection": selection,
            "subset": subset,
            "aggregation": aggregation,
            "baseline": baseline,
            "routing": routing,
            "tail_bucket": tail_bucket,
        }
        assert_agrees(samples, settings, tolerance=1e-12, mean=0.25)


def held(made):
    """The sample with pi_old, which the loss holds fixed, no longer read off the current logits."""
    if made.get("logits_old") is not None:
        return made
    return made | {"logits_old": np.copy(made["logits_current"])}


def slopes(samples, settings, *, directions=12, step=1e-6):
    """The reference loss by central differences, pi_old held: random directions in the logits_current of all
    samples, with the loss's slope along each."""
    rng, held_samples = np.random.default_rng(5), [held(made) for made in samples]
    for _ in range(directions):
        direction = [rng.standard_normal(made["logits_current"].shape) for made in samples]
        losses = []
        for by in (step, -step):
            moved = [
                made | {"logits_current": made["logits_current"] + by * along}
                for made, along in zip(held_samples, direction, strict=True)
            ]
            losses.append(reference.evaluate(moved, settings)[0])
        yield direction, (losses[0] - losses[1]) / (2 * step)


def check_slopes(samples, settings, *, tolerance):
    """A mistake in any logit's gradient shows along every direction."""
    gradients = evaluate(samples, settings).gradients
    for gradient in gradients:
        assert abs(gradient).max() > 1e-3
    for direction, slope in slopes(samples, settings):
        along = sum(np.vdot(gradient, each) for gradient, each in zip(gradients, direction, strict=True))
        assert abs(along - slope) < tolerance


@pytest.mark.parametrize(
    ("objective", "on_policy", "tail_bucket"),
    [
        (objective, on_policy, tail_bucket)
        for objective, on_policy in product(OBJECTIVES, (True, False))
        for tail_bucket in ((False, True) if objective in WITH_TAIL else (on_policy,))
    ],
)
def test_finite_differences_of_the_loss_are_the_gradient(objective, on_policy, tail_bucket):
    rng = np.random.default_rng(3)
    samples = [
        sample(rng, tau=0.6, drift=0.1),
        sample(rng, tau=1.0, drift=0.1, hints=0, reward=-1.0),
        sample(rng, tau=0.0, drift=0.1, tokens=1, mask=np.array([True])),
    ]
    if on_policy:
        samples = [made | {"logits_old": None} for made in samples]
    settings = {
        "objective": objective,
        "tail_bucket": tail_bucket,
        "w_RL": 0.5,
        "w_OPD": 0.8,
        "c_H": 0.1,
        "beta": 0.5,
    }
    check_slopes(samples, settings, tolerance=1e-8)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_finite_differences_of_each_term_alone_are_its_gradient(objective):
    """Without reference KL and entropy, whose gradients would hide a small mistake."""
    rng = np.random.default_rng(11)
    samples = [sample(rng, tau=0.6, drift=0.1), sample(rng, tau=1.3, drift=0.1, reward=-1.0)]
    settings = {"objective": objective, "beta": 0, "K": 3}
    check_slopes(samples, settings, tolerance=1e-9)
