"""Random batches for the objectives' tests, made from a seed so that hypothesis can shrink their shape."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from afterwit.objective import evaluate

from . import reference

OBJECTIVES = tuple(reference.STATED)
SELECTIONS = ("shortest", "longest", "random", "sequence_optimal", "token_optimal")
"""The hint-selection rules that the reference states a second time."""
SUBSETS = ("student", "teacher", "overlap")
CELLS = list(product(SELECTIONS, SUBSETS))


def sample(rng, *, tokens=3, vocabulary=7, hints=2, scale=1.0, reward=1.0, tau=1.0, drift=0.3, **more):
    """One sample as `evaluate` takes it: the old policy near the current one, the others further off."""
    current = scale * rng.normal(size=(tokens, vocabulary))
    old = current + drift * rng.normal(size=current.shape)
    made = {
        "logits_current": current,
        "logits_old": old,
        "logits_teacher": current + scale * rng.normal(size=(hints, *current.shape)),
        "logits_base": current + scale * rng.normal(size=current.shape),
        "ids": rng.integers(vocabulary, size=tokens),
        "behaviour": np.log(rng.uniform(0.02, 0.9, size=tokens)),
        "reward": reward,
        "tau": tau,
    }
    return made | more


def toward(student, teacher, **settings):
    """Top-K distillation's loss and gradient of one token with these logits [V]."""
    arrays = {"logits_current": student[None], "logits_teacher": teacher[None, None], "ids": [0]}
    got = evaluate([arrays], {"objective": "topk_distill", "beta": 0} | settings)
    return float(got.loss), got.gradients[0][0]


def rounded(made):
    """The sample with its logits on a coarse grid, where many are equal."""
    return {name: np.round(2 * a) / 2 if name.startswith("logits") else a for name, a in made.items()}


@st.composite
def samples(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    made = sample(
        rng,
        tokens=draw(st.integers(1, 4)),
        vocabulary=draw(st.integers(2, 8)),
        hints=draw(st.integers(0, 3)),
        scale=draw(st.sampled_from((0.3, 1.0, 2.0))),
        reward=draw(st.sampled_from((-1.0, 0.0, 1.0))),
        tau=draw(st.sampled_from((0.01, 0.6, 1.0, 1.5))),
        basis=draw(st.sampled_from(("processed", "raw"))),
        group=draw(st.sampled_from((None, "p", "q"))),
    )
    made["mask"] = np.array([True] + [draw(st.booleans()) for _ in made["ids"][1:]])
    if draw(st.booleans()):
        made = rounded(made)
    for absent in draw(st.sets(st.sampled_from(("logits_old", "behaviour", "mask", "basis")))):
        made[absent] = None
    return made


def batches():
    """One to four samples."""
    return st.lists(samples(), min_size=1, max_size=4)


@st.composite
def settings(draw):
    """Settings in the symbols of the algorithm page."""
    selection, subset = draw(st.sampled_from(CELLS))
    return {
        "objective": draw(st.sampled_from(OBJECTIVES)),
        "hint_selection": selection,
        "subset": subset,
        "w_RL": draw(st.sampled_from((0.0, 0.2, 1.0))),
        "w_OPD": draw(st.sampled_from((0.0, 0.7, 1.0))),
        "K": draw(st.none() | st.integers(1, 9)),
        "C": draw(st.sampled_from((0.0, 0.5, 1.0))),
        "tail_bucket": draw(st.booleans()),
        "c_H": draw(st.sampled_from((0.0, 0.1))),
        "beta": draw(st.sampled_from((0.0, 0.01, 1.0))),
        "routing": draw(st.sampled_from(("all", "routed"))),
        "confident_above": draw(st.sampled_from((0.4, 0.95))),
        "baseline": draw(st.sampled_from(("none", "running", "group"))),
        "eps_hi": draw(st.sampled_from((0.05, 0.28))),
        "token_eps_lo": draw(st.sampled_from((0.05, 0.2))),
        "is_cap": draw(st.sampled_from((0.5, 2.0))),
        "aggregation": draw(st.sampled_from(("component", "batch"))),
    }
