"""Sampling against transformers' processors, and against the distribution itself."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from afterwit.engines.embedded.sequence import Draw, min_p, top_k, top_p
from afterwit.engines.embedded.sequence import draw as draw_rows
from afterwit.turn import Sampling

VOCABULARY = 12


def logits_of(seed: int, rows: int = 1, size: int = VOCABULARY) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * 2


def one(uniform: float = 0.5, **fields) -> Draw:
    columns = ("counts", "prompt", "forced", "mask", "top_logprobs")
    more = {name: fields.pop(name) for name in columns if name in fields}
    return Draw(sampling=Sampling(**{"max_tokens": 1} | fields), uniform=uniform, **more)


def draw(logits_BV: torch.Tensor, how: list[Draw]) -> tuple[list[int], list[float]]:
    drawn = draw_rows(logits_BV, how)
    return [token for token, _, _ in drawn], [logprob for _, logprob, _ in drawn]


def support(logits_1V: torch.Tensor, **fields) -> dict[int, float]:
    """Every id that a fine sweep of uniforms draws, with its log-prob."""
    sweep = [one((i + 0.5) / 400, **fields) for i in range(400)]
    ids, logprobs = draw(logits_1V.expand(len(sweep), -1), sweep)
    return dict(zip(ids, logprobs, strict=True))


@given(seed=st.integers(0, 10_000), k=st.integers(1, 15))
def test_top_k_keeps_what_transformers_keeps(seed: int, k: int) -> None:
    logits = logits_of(seed)
    torch.testing.assert_close(top_k(logits, [k]), TopKLogitsWarper(k)(None, logits))


@given(seed=st.integers(0, 10_000), p=st.floats(0.01, 0.99))
def test_top_p_keeps_what_transformers_keeps(seed: int, p: float) -> None:
    logits = logits_of(seed)
    torch.testing.assert_close(top_p(logits, [p]), TopPLogitsWarper(p)(None, logits))


@given(seed=st.integers(0, 10_000), p=st.floats(0.01, 0.99))
def test_min_p_keeps_what_transformers_keeps(seed: int, p: float) -> None:
    logits = logits_of(seed)
    torch.testing.assert_close(min_p(logits, [p]), MinPLogitsWarper(p)(None, logits))


@given(
    seed=st.integers(0, 500),
    temperature=st.floats(0.3, 2.0),
    k=st.integers(0, 12),
    p=st.floats(0.3, 1.0),
    low=st.floats(0.0, 0.3),
    repetition=st.floats(0.5, 2.0),
)
def test_all_together_the_log_probs_are_those_of_transformers_chain(
    seed: int, temperature: float, k: int, p: float, low: float, repetition: float
) -> None:
    logits, seen = logits_of(seed), torch.tensor([[0, 3, 5]])
    expected = RepetitionPenaltyLogitsProcessor(repetition)(seen, logits.clone())
    expected = TemperatureLogitsWarper(temperature)(seen, expected)
    expected = TopKLogitsWarper(k)(seen, expected) if k else expected
    expected = TopPLogitsWarper(p)(seen, expected)
    expected = (MinPLogitsWarper(low)(seen, expected) if low else expected).log_softmax(-1)[0]
    how = {"temperature": temperature, "top_k": k, "top_p": p, "min_p": low, "repetition_penalty": repetition}
    drawn = support(logits, prompt=frozenset({0, 3}), counts={5: 1}, **how)
    likely = {index for index, value in enumerate(expected.exp()) if value > 0.01}
    assert likely <= drawn.keys() <= set(torch.isfinite(expected).nonzero()[:, 0].tolist())
    for token, logprob in drawn.items():
        assert logprob == pytest.approx(expected[token].item(), abs=1e-5)


def test_drawn_ids_follow_the_distribution() -> None:
    """Chi-square over 20,000 draws: under 35 with 11 degrees of freedom (exceeded once in 4,000 seeds)."""
    logits, rng, draws = logits_of(1), random.Random(0), 20_000
    how = [one(rng.random(), temperature=0.8) for _ in range(draws)]
    ids, _ = draw(logits.expand(draws, -1), how)
    counts = torch.bincount(torch.tensor(ids), minlength=VOCABULARY).double()
    expected = (logits[0] / 0.8).double().softmax(-1) * draws
    assert ((counts - expected) ** 2 / expected).sum() < 35


def test_truncated_draws_follow_the_renormalised_distribution() -> None:
    logits, rng, draws = logits_of(2), random.Random(0), 20_000
    ids, _ = draw(logits.expand(draws, -1), [one(rng.random(), top_k=4) for _ in range(draws)])
    kept = logits[0].topk(4)
    expected = kept.values.double().softmax(-1) * draws
    counts = torch.bincount(torch.tensor(ids), minlength=VOCABULARY).double()[kept.indices]
    assert counts.sum() == draws
    assert ((counts - expected) ** 2 / expected).sum() < 20


@given(seed=st.integers(0, 10_000), uniform=st.sampled_from([0.0, 0.5, 1 - 2**-53]), k=st.integers(1, 12))
def test_the_ends_of_the_uniform_never_draw_what_is_excluded(seed: int, uniform: float, k: int) -> None:
    _, logprobs = draw(logits_of(seed), [one(uniform, top_k=k)])
    assert logprobs[0] > -50


def test_each_row_has_its_own_settings() -> None:
    logits = logits_of(3, rows=4)
    how = [one(temperature=0.0), one(top_k=1), one(forced=7), one(logit_bias=((2, 100.0),))]
    ids, logprobs = draw(logits, how)
    assert ids[:2] == logits[:2].argmax(-1).tolist()
    assert ids[2:] == [7, 2]
    assert logprobs[0] == pytest.approx(logits[0].log_softmax(-1).max().item())
    assert logprobs[1] == 0.0
    assert logprobs[2] == pytest.approx(logits[2].log_softmax(-1)[7].item())


def test_equal_logits_give_greedy_the_lower_id() -> None:
    ids, _ = draw(torch.zeros(1, VOCABULARY), [one(temperature=0.0)])
    assert ids == [0]


def test_frequency_and_presence_lower_what_the_response_has_said() -> None:
    fields = {"frequency_penalty": 0.5, "presence_penalty": 0.25, "counts": {3: 4}, "prompt": frozenset({5})}
    ids, logprobs = draw(torch.zeros(1, VOCABULARY), [one(forced=3, **fields)])
    changed = torch.zeros(VOCABULARY)
    changed[3] = -0.5 * 4 - 0.25
    assert ids == [3]
    assert logprobs[0] == pytest.approx(changed.log_softmax(-1)[3].item())


def test_the_logits_given_are_left_as_they_were() -> None:
    logits = logits_of(4)
    before = logits.clone()
    draw(logits, [one(top_p=0.5, logit_bias=((1, 5.0),), temperature=0.5)])
    torch.testing.assert_close(logits, before)


def test_a_mask_leaves_its_own_row_the_allowed_ids_and_the_others_all() -> None:
    logits = logits_of(5, rows=2)
    allowed = torch.zeros(VOCABULARY, dtype=torch.bool)
    allowed[[2, 7, 9]] = True
    drawn = support(logits[:1], mask=lambda: allowed)
    assert drawn.keys() <= {2, 7, 9}
    expected = logits[0, allowed].log_softmax(-1)
    assert drawn[2] == pytest.approx(expected[0].item(), abs=1e-5)
    free = one(0.3, temperature=0.9)
    beside, alone = draw(logits, [one(mask=lambda: allowed), free]), draw(logits[1:], [free])
    assert (beside[0][1], beside[1][1]) == (alone[0][0], pytest.approx(alone[1][0]))


def test_alternatives_are_of_the_models_own_distribution_however_the_id_was_drawn() -> None:
    logits = logits_of(6)
    how = {"temperature": 0.3, "top_k": 1, "logit_bias": ((4, 100.0),), "top_logprobs": 3}
    ((token, _, top),) = draw_rows(logits, [one(**how)])
    own = logits[0].log_softmax(-1)
    assert token == 4
    assert top is not None
    assert top.sampled == pytest.approx(own[4].item())
    assert list(top.ids) == own.topk(3).indices.tolist()
    assert top.logprobs == pytest.approx(own.topk(3).values.tolist())
    assert draw_rows(logits, [one()])[0][2] is None


@given(seed=st.integers(0, 10_000), count=st.integers(0, 14))
def test_alternatives_fall_and_equal_ones_come_by_the_lower_id(seed: int, count: int) -> None:
    logits_1V = logits_of(seed).round()
    ((_, _, top),) = draw_rows(logits_1V, [one(top_logprobs=count)])
    logprobs = logits_1V[0].log_softmax(-1).tolist()
    expected = sorted(range(VOCABULARY), key=lambda token: (-logprobs[token], token))[:count]
    assert top is not None
    assert list(top.ids) == expected
    assert list(top.logprobs) == [logprobs[token] for token in expected]
