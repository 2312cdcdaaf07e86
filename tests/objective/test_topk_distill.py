"""Top-K distillation is a distance between distributions."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterwit.objective import ObjectiveSettings, evaluate
from afterwit.objective.sample import Sample, prepare

from .batches import sample, toward

DISTILL = {"objective": "topk_distill", "beta": 0}
SEEDS = st.integers(0, 2**32 - 1)


def made_of(seed, **more):
    return sample(np.random.default_rng(seed), hints=1, **more)


def full_reverse_kl(made):
    """KL(pi || pi_T) over the whole vocabulary, by the term of the reference KL."""
    as_base = made | {"logits_base": made["logits_teacher"][0], "reward": 0.0}
    return evaluate([as_base], {"objective": "rl", "beta": 1})


@given(
    SEEDS, st.integers(1, 4), st.integers(2, 9), st.sampled_from((0.6, 1.0, 1.5)), st.sampled_from((0, 1, 40))
)
def test_with_the_whole_vocabulary_kept_it_is_the_full_reverse_kl(seed, tokens, vocabulary, tau, more):
    made = made_of(seed, tokens=tokens, vocabulary=vocabulary, tau=tau)
    got, full = evaluate([made], DISTILL | {"K": vocabulary + more}), full_reverse_kl(made)
    assert got.loss == pytest.approx(full.loss, abs=1e-12)
    np.testing.assert_allclose(got.gradients[0], full.gradients[0], rtol=0, atol=1e-12)


@given(SEEDS, st.sampled_from((0.3, 1.0)))
def test_more_bins_never_see_less_and_none_sees_more_than_the_whole_vocabulary(seed, scale):
    made = made_of(seed, vocabulary=9, scale=scale)
    losses = [float(evaluate([made], DISTILL | {"K": k}).loss) for k in range(1, 10)]
    assert losses[0] >= 0
    assert all(one <= next_one + 1e-9 for one, next_one in pairwise(losses))
    assert losses[-1] == pytest.approx(full_reverse_kl(made).loss, abs=1e-12)


def test_it_is_measured_in_nats_by_hand():
    """pi = (1/2, 1/4, 1/4), pi_T = (1/4, 1/2, 1/4); the teacher's likeliest id alone has a bin of its own."""
    pi, pi_T = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    loss, _ = toward(np.log(pi), np.log(pi_T), K=1)
    assert loss == pytest.approx(0.25 * np.log(0.25 / 0.5) + 0.75 * np.log(0.75 / 0.5), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 5, 7, 50])
def test_certain_teachers_and_students_stay_finite(dtype, k):
    rng = np.random.default_rng(0)
    made = {
        name: torch.tensor(rng.choice([-1e4, 0.0, 1e4], size=shape)).to(dtype)
        for name, shape in (("logits_current", (40, 7)), ("logits_teacher", (2, 40, 7)))
    }
    got = evaluate([made | {"ids": rng.integers(7, size=40)}], DISTILL | {"K": k})
    assert torch.isfinite(got.loss)
    assert torch.isfinite(got.gradients[0]).all()


def test_half_precision_logits_are_read_as_single():
    made = made_of(1, vocabulary=60, tokens=5)
    half = {name: torch.tensor(made[name]).bfloat16() for name in ("logits_current", "logits_teacher")}
    single = {name: logits.float() for name, logits in half.items()}
    got, same = (evaluate([arrays | {"ids": made["ids"]}], DISTILL) for arrays in (half, single))
    assert got.loss == same.loss.bfloat16()
    torch.testing.assert_close(got.gradients[0], same.gradients[0].bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize(("vocabulary", "kept"), [(80, 50), (50, 50), (12, 12)])
def test_fifty_ids_have_a_bin_of_their_own_or_as_many_as_there_are(vocabulary, kept):
    made = made_of(3, vocabulary=vocabulary, tokens=4)
    facts = Sample(
        ids_T=torch.tensor(made["ids"]),
        mask_T=torch.ones(4, dtype=torch.bool),
        behaviour_T=None,
        tau=1.0,
        advantage=None,
        hints=1,
    )
    settings = ObjectiveSettings(objective="topk_distill")
    target = prepare(
        facts, torch.tensor(made["logits_current"]), torch.tensor(made["logits_teacher"]), settings
    )
    bins = target.tokens.kept
    assert bins.ids_TK.shape == (4, kept)
    assert bins.teacher_TS.shape == (4, kept + 1)
    torch.testing.assert_close(
        bins.teacher_TS.exp().sum(-1), torch.ones(4, dtype=torch.float64), rtol=0, atol=2e-7
    )
    assert all(len(set(row)) == kept for row in bins.ids_TK.tolist())


@given(SEEDS)
def test_reward_sampled_id_behaviour_and_pi_old_change_nothing(seed):
    made = made_of(seed, tokens=4)
    other = made | {"ids": (made["ids"] + 1) % 7, "reward": -1.0, "behaviour": None, "logits_old": None}
    got, same = evaluate([made], DISTILL | {"K": 3}), evaluate([other], DISTILL | {"K": 3})
    assert got.loss == same.loss
    np.testing.assert_array_equal(got.gradients[0], same.gradients[0])
