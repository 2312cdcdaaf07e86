"""Limits, symmetries and properties of the objectives, through `objective.evaluate`."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterwit.objective import evaluate
from afterwit.objective.settings import HINT_RULES

from .batches import OBJECTIVES, SUBSETS, batches, sample
from .batches import settings as objective_settings

OPD = {"objective": "topk_opd", "beta": 0}
DISTILL = {"objective": "topk_distill", "beta": 0}
COMBINE = {"objective": "combine", "beta": 0}
RL = {"objective": "rl", "beta": 0}


def rng(seed=0):
    return np.random.default_rng(seed)


def on_policy(made):
    """The sample at the start of an update: pi_old = pi."""
    return made | {"logits_old": None}


@pytest.mark.parametrize("objective", ["topk_opd", "token_opd", "combine"])
@pytest.mark.parametrize(("selection", "subset"), product(HINT_RULES, SUBSETS))
@pytest.mark.parametrize("tail_bucket", [False, True])
def test_a_student_equal_to_its_teacher_has_no_advantage(objective, selection, subset, tail_bucket):
    made = on_policy(sample(rng(), tau=0.6, reward=0.0))
    made["logits_teacher"] = np.stack([made["logits_current"]] * 2)
    settings = OPD | {"objective": objective, "hint_selection": selection, "subset": subset}
    got = evaluate([made], settings | {"tail_bucket": tail_bucket})
    assert got.loss == 0
    assert not got.gradients[0].any()


@pytest.mark.parametrize("k", [1, 3, 7, 50])
@pytest.mark.parametrize("tau", [0.6, 1.0])
def test_a_student_equal_to_its_teacher_has_distance_zero(k, tau):
    made = sample(rng(), tau=tau)
    made["logits_teacher"] = np.stack([made["logits_current"]] * 2)
    got = evaluate([made], DISTILL | {"K": k})
    assert got.loss == 0
    np.testing.assert_allclose(got.gradients[0], 0, atol=1e-15)


@given(batches(), objective_settings(), st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(samples, settings, random):
    order = list(range(len(samples)))
    random.shuffle(order)
    straight, shuffled = evaluate(samples, settings), evaluate([samples[n] for n in order], settings)
    assert shuffled.loss == pytest.approx(straight.loss, abs=1e-12, rel=1e-12)
    for place, n in enumerate(order):
        np.testing.assert_array_equal(shuffled.gradients[place], straight.gradients[n])


def test_a_sample_without_reward_carries_no_rl_term():
    liked, unclear = sample(rng(1), hints=0, reward=1.0), sample(rng(2), hints=0, reward=0.0)
    alone, together = evaluate([liked], RL), evaluate([liked, unclear], RL)
    assert together.loss == alone.loss
    assert not together.gradients[1].any()


def test_aggregation_batch_divides_every_term_by_all_samples():
    samples = [sample(rng(1)), sample(rng(2), reward=0.0), sample(rng(3), hints=0)]
    component = evaluate(samples, {}).terms
    batch = evaluate(samples, {"aggregation": "batch"}).terms
    assert batch["rl"] == pytest.approx(component["rl"] * 2 / 3, rel=1e-12)
    assert batch["opd"] == pytest.approx(component["opd"] * 2 / 3, rel=1e-12)
    assert batch["reference_kl"] == component["reference_kl"]


def test_a_greedy_turn_learns_by_distillation_only_and_at_temperature_1():
    made = sample(rng(), tau=0.0)
    got = evaluate([made], {})
    assert got.terms["rl"] == 0
    assert got.terms["opd"] == evaluate([made | {"tau": 1.0}], {}).terms["opd"]


def test_the_clip_on_the_difference_is_off_at_zero_and_below():
    made = on_policy(sample(rng(), hints=1, scale=3.0))
    free = evaluate([made], OPD | {"C": 0}).loss
    assert evaluate([made], OPD | {"C": -1.0}).loss == free
    assert evaluate([made], OPD | {"C": 1e9}).loss == free
    assert abs(evaluate([made], OPD | {"C": 1.0}).loss) < abs(free)


def test_with_the_whole_vocabulary_kept_the_tail_is_empty_and_changes_nothing():
    made = on_policy(sample(rng(), hints=1))
    without, with_tail = (evaluate([made], OPD | {"K": 7, "tail_bucket": tail}) for tail in (False, True))
    assert with_tail.loss == pytest.approx(without.loss, abs=1e-6)
    np.testing.assert_allclose(with_tail.gradients[0], without.gradients[0], atol=1e-6)
    assert evaluate([made], OPD | {"K": 99}).loss == without.loss


def test_an_empty_overlap_contributes_nothing():
    made = on_policy(sample(rng(), hints=1, tokens=1, vocabulary=4))
    made["logits_current"] = np.array([[9.0, 5.0, 1.0, 0.0]])
    made["logits_teacher"] = np.array([[[0.0, 1.0, 5.0, 9.0]]])
    for tail_bucket in (False, True):
        got = evaluate([made], OPD | {"subset": "overlap", "K": 2, "tail_bucket": tail_bucket})
        assert got.terms["opd"] == 0
        assert not got.gradients[0].any()


@pytest.mark.parametrize("settings", [RL, OPD, OPD | {"objective": "token_opd"}, COMBINE])
def test_clipping_is_inert_while_the_policy_has_not_moved(settings):
    made = on_policy(sample(rng(), hints=1))
    narrow = settings | {"eps_lo": 0, "eps_hi": 0, "token_eps_lo": 0, "token_eps_hi": 0}
    got, clipped = evaluate([made], settings), evaluate([made], narrow)
    assert got.loss == clipped.loss


@pytest.mark.parametrize(
    ("reward", "moved", "learns"), [(1, 1, False), (1, -1, True), (-1, 1, True), (-1, -1, False)]
)
def test_clipping_stops_a_policy_that_has_moved_far_enough(reward, moved, learns):
    made = sample(rng(), hints=0, tokens=1, reward=float(reward), drift=0.0, behaviour=None)
    made["logits_old"][0, made["ids"]] -= moved
    assert evaluate([made], RL).gradients[0].any() == learns


def test_the_importance_weight_is_truncated_and_never_touches_ids_that_are_scored():
    made = on_policy(sample(rng(), hints=1, tokens=1))
    logprob = torch.log_softmax(torch.tensor(made["logits_current"]), -1)[0, made["ids"]].numpy()
    corrected, scored = (1.0, 0.5, 2.0), (1.0, 1.0, 1.0)
    for settings, factors in ((RL, corrected), (COMBINE, corrected), (OPD, scored), (DISTILL, scored)):
        plain = evaluate([made | {"behaviour": None}], settings).loss
        for shift, factor in zip((0.0, np.log(2), -5.0), factors, strict=True):
            got = evaluate([made | {"behaviour": logprob + shift}], settings).loss
            assert got == pytest.approx(factor * plain, rel=1e-12)


@pytest.mark.parametrize(
    ("dtype", "objective", "tail_bucket", "selection", "subset"),
    [
        ((np.float32, np.float64)[number % 2], objective, number // 2 % 2 == 1, selection, subset)
        for number, (objective, selection, subset) in enumerate(product(OBJECTIVES, HINT_RULES, SUBSETS))
    ],
)
def test_extreme_logits_stay_finite(dtype, objective, tail_bucket, selection, subset):
    """Every objective with every rule and subset; precision and tail in turns, each pair with each value of
    the others."""
    made = sample(rng(), tokens=6, hints=2)
    for name in ("logits_current", "logits_old", "logits_teacher", "logits_base"):
        made[name] = rng(len(name)).choice([-1e4, 0.0, 1e4], size=made[name].shape).astype(dtype)
    settings = {
        "objective": objective,
        "hint_selection": selection,
        "subset": subset,
        "tail_bucket": tail_bucket,
        "C": 0,
        "c_H": 0.1,
    }
    got = evaluate([made], settings)
    assert np.isfinite(got.loss)
    assert all(np.isfinite(gradient).all() for gradient in got.gradients)


def test_equal_logits_are_kept_by_the_lower_id():
    made = on_policy(sample(rng(), hints=1, tokens=1, vocabulary=6))
    made["logits_current"] = np.zeros((1, 6))
    made["logits_teacher"] = np.array([[[1.0, 1.0, 0.0, 0.0, -1.0, -1.0]]])
    taught = evaluate([made], OPD | {"K": 2})
    assert (-taught.gradients[0][0, :2] > 0).all()
    np.testing.assert_allclose(taught.gradients[0][0, 2:], taught.gradients[0][0, 2])


def test_nothing_depends_on_what_masked_tokens_hold():
    made = sample(rng(), tokens=4, mask=np.array([True, False, True, True]))
    other = {name: np.array(a, copy=True) for name, a in made.items()} | {"tau": 1.0, "reward": 1.0}
    for name in ("logits_current", "logits_old", "logits_base"):
        other[name][1] = rng(9).normal(size=7)
    other["logits_teacher"][:, 1] = rng(9).normal(size=(2, 7))
    got, same = evaluate([made], {}), evaluate([other], {})
    assert got.loss == same.loss
    np.testing.assert_array_equal(got.gradients[0], same.gradients[0])
    assert not got.gradients[0][1].any()


@pytest.mark.parametrize("tail_bucket", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_id_that_nobody_can_say_changes_nothing(objective, tail_bucket):
    """A padded row of the vocabulary has the logit -inf: no probability, and 0 log 0 is 0."""
    rng = np.random.default_rng(11)
    narrow = [sample(rng, vocabulary=5, tokens=4, reward=reward) for reward in (-1.0, 1.0)]
    wide = [
        {
            name: np.insert(a, 2, -np.inf, axis=-1) if name.startswith("logits") else a
            for name, a in made.items()
        }
        for made in narrow
    ]
    for made in wide:
        made["ids"] = made["ids"] + (made["ids"] >= 2)
    settings = {"objective": objective, "k": 6, "tail_bucket": tail_bucket, "entropy_coef": 0.1}
    less, more = evaluate(narrow, settings), evaluate(wide, settings)
    assert more.loss == pytest.approx(less.loss, rel=1e-12)
    for narrow_TV, wide_TV in zip(less.gradients, more.gradients, strict=True):
        assert wide_TV[:, 2] == pytest.approx(np.zeros(4), abs=0)
        np.testing.assert_allclose(np.delete(wide_TV, 2, axis=-1), narrow_TV, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"basis": "Raw"}, "'Raw' is not a valid Basis"),
        ({"hint_lengths": (20, 12)}, "shortest first"),
        ({"behaviour": np.array([-1.0, np.nan, -1.0]), "mask": [True, False, True]}, "not finite"),
    ],
)
def test_a_sample_that_could_be_misread_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        evaluate([sample(np.random.default_rng(6)) | wrong], {})
