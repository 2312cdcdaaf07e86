"""`evaluate`: names, kinds and dtypes."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from afterwit.objective import ObjectiveSettings, evaluate

from .batches import sample


def rng(seed=0):
    return np.random.default_rng(seed)


def tensors(made, dtype=None):
    return {
        name: torch.as_tensor(a).to(dtype if a.dtype == float else None) if isinstance(a, np.ndarray) else a
        for name, a in made.items()
    }


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numpy_in_numpy_out_in_the_dtype_of_the_logits(dtype):
    made = sample(rng())
    made["logits_current"] = made["logits_current"].astype(dtype)
    got = evaluate([made], {})
    assert got.loss.dtype == dtype
    assert {value.dtype for value in got.terms.values()} == {np.dtype(dtype)}
    assert isinstance(got.gradients[0], np.ndarray)
    assert (got.gradients[0].dtype, got.gradients[0].shape) == (dtype, (3, 7))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_torch_in_torch_out_in_the_dtype_of_the_logits(dtype):
    got = evaluate([tensors(sample(rng()), dtype)], {})
    assert got.loss.dtype == got.gradients[0].dtype == dtype
    assert not got.loss.requires_grad


def test_torch_and_numpy_agree_and_neither_is_changed():
    made = sample(rng())
    before = {name: np.copy(a) for name, a in made.items()}
    assert float(evaluate([tensors(made)], {}).loss) == evaluate([made], {}).loss
    for name, a in made.items():
        np.testing.assert_array_equal(a, before[name])


def test_lists_of_floats_are_doubles():
    made = sample(rng())
    listed = {name: a.tolist() if isinstance(a, np.ndarray) else a for name, a in made.items()}
    assert evaluate([listed], {}).loss == evaluate([made], {}).loss


def test_settings_go_by_name_or_symbol_in_any_case():
    made = sample(rng())
    ours = ObjectiveSettings(w_rl=0.5, w_opd=0.25, k=2, logprob_diff_clip=0.5, entropy_coef=0.1, eps_lo=0.1)
    symbols = {"w_RL": 0.5, "w_OPD": 0.25, "K": 2, "C": 0.5, "c_H": 0.1, "eps_lo": 0.1}
    assert evaluate([made], symbols).loss == evaluate([made], ours).loss


def test_names_that_mean_nothing_are_refused_with_the_nearest():
    made = sample(rng())
    with pytest.raises(ValueError, match="unknown setting 'w_rll'; the nearest is 'w_rl'"):
        evaluate([made], {"w_rll": 1})
    with pytest.raises(ValueError, match="unknown array 'logit_base'; the nearest is 'logits_base'"):
        evaluate([made | {"logit_base": None}], {})
    with pytest.raises(ValueError, match="given twice"):
        evaluate([made], {"C": 1, "logprob_diff_clip": 2})


def test_one_mapping_of_lists_is_the_same_batch():
    batch = [sample(rng(1)), sample(rng(2), hints=0)]
    columns = {name: [made[name] for made in batch] for name in batch[0]} | {"tau": 1.0, "mask": None}
    assert evaluate(columns, {}).loss == evaluate(batch, {}).loss
    with pytest.raises(ValueError, match="2 samples but 1 of reward"):
        evaluate(columns | {"reward": [1.0]}, {})


def test_what_is_absent_or_none_is_left_out():
    made = sample(rng(), hints=0)
    least = {name: made[name] for name in ("logits_current", "ids", "reward")}
    absent = {"logits_old": None, "logits_teacher": None, "logits_base": None, "behaviour": None, "tau": None}
    alone = {"w_rl": 1, "beta": 0}
    got, same = evaluate([least], alone), evaluate([least | absent], alone)
    assert got.loss == same.loss == pytest.approx(-1.0)
    with pytest.raises(ValueError, match="reference's logits are missing"):
        evaluate([least], {})
    with pytest.raises(ValueError, match=r"logits \[3, 7\] but old \[3, 6\]"):
        evaluate([least | {"logits_old": made["logits_old"][:, :6]}], {"beta": 0})
    with pytest.raises(ValueError, match="lacks logits_current"):
        evaluate([{"reward": 1.0}], {})
    with pytest.raises(ValueError, match="lack logits_current"):
        evaluate({"reward": [1.0]}, {})
    with pytest.raises(ValueError, match="there is no sample"):
        evaluate([], {})


def test_groups_and_the_running_mean_reach_the_advantage():
    pair = [sample(rng(n), hints=0, reward=reward, group="p") for n, reward in enumerate((1.0, -1.0))]
    on_policy = [made | {"logits_old": None, "behaviour": None} for made in pair]
    settings = {"objective": "rl", "w_rl": 1, "beta": 0}
    assert evaluate(on_policy, settings | {"baseline": "group"}).loss == pytest.approx(0, abs=1e-12)
    shifted = evaluate(on_policy[:1], settings | {"baseline": "running"}, running_mean=0.25)
    assert shifted.loss == pytest.approx(-0.75)


def test_settings_are_read_without_torch():
    code = "import sys, afterwit.objective, afterwit.objective.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_greedy_turn_is_not_weighted_by_what_sampled_it():
    """Greedy decoding does not sample: its log-probs correct nothing, here as in the learner."""
    made = sample(rng(), tau=0.0)
    settings = {"objective": "token_opd", "beta": 0}
    assert evaluate([made], settings).loss == evaluate([made | {"behaviour": None}], settings).loss


def test_behaviour_that_is_too_short_is_refused_with_both_lengths():
    made = sample(rng())
    with pytest.raises(ValueError, match="3 ids but 2 log-probs in behaviour"):
        evaluate([made | {"behaviour": made["behaviour"][:2]}], {})
