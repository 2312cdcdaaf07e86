"""Scoring: exact top-K in two stages, log-probs and logsumexp, whatever the chunk."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterwit.fused_head.head import Head, by_sorting, score_states, two_stage_top_k
from afterwit.objective.terms import top_k

SIZES = (1, 2, 127, 128, 129, 300, 1000, 4097)


@given(
    st.integers(0, 2**32 - 1), st.sampled_from(SIZES), st.integers(1, 60), st.sampled_from((1, 3, 30, None))
)
def test_two_stages_give_what_sorting_everything_gives(
    seed: int, size: int, k: int, levels: int | None
) -> None:
    """Also where only a few different logits exist, so that every place is a tie, and where some are -inf."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, size, generator=generator)
    if levels is not None:
        logits = torch.randint(levels, (4, size), generator=generator).float()
        logits[1] = torch.where(logits[1] > 0, logits[1], -torch.inf)
    ids, peak = two_stage_top_k(logits, k)
    expected = logits.sort(dim=-1, descending=True, stable=True).indices[:, : min(k, size)]
    assert torch.equal(ids, expected)
    assert torch.equal(ids, top_k(logits, k))
    assert torch.equal(ids, by_sorting(logits, k))
    assert torch.equal(peak[:, 0], logits.amax(dim=-1))


@pytest.mark.parametrize("chunk", [1, 4, 256])
@pytest.mark.parametrize("soft_cap", [None, 5.0])
def test_scores_are_those_of_a_whole_log_softmax(chunk: int, soft_cap: float | None) -> None:
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    head = Head(weight_VD=3 * draw(1500, 8), bias_V=draw(1500), soft_cap=soft_cap)
    states, tau = draw(11, 8), torch.rand(11, generator=generator) + 0.3
    ids = torch.randint(1500, (11, 3), generator=generator)
    logits = states @ head.weight_VD.t() + head.bias_V
    logits = logits if soft_cap is None else soft_cap * torch.tanh(logits / soft_cap)
    logprobs = torch.log_softmax(logits / tau.double()[:, None], dim=-1)
    found = score_states(head, states, tau, ids, k=20, chunk=chunk)
    torch.testing.assert_close(found.top_NK, logprobs.topk(20).values, rtol=0, atol=1e-12)
    assert torch.equal(found.top_ids_NK, logprobs.topk(20).indices)
    torch.testing.assert_close(found.at_NJ, logprobs.gather(-1, ids), rtol=0, atol=1e-12)
    torch.testing.assert_close(head.logits_at(states, ids), logits.gather(-1, ids), rtol=0, atol=1e-12)


def test_a_large_peak_costs_no_digits() -> None:
    head = Head(weight_VD=torch.tensor([[1e4], [1e4 - 2], [0.0]]))
    found = score_states(head, torch.ones(1, 1), torch.ones(1), torch.tensor([[0, 1]]))
    expected = torch.log_softmax(torch.tensor([0.0, -2.0], dtype=torch.float64), dim=-1)
    torch.testing.assert_close(found.at_NJ[0].double(), expected, rtol=0, atol=1e-6)


def test_rows_that_do_not_match_are_refused() -> None:
    head = Head(weight_VD=torch.ones(3, 2))
    with pytest.raises(ValueError, match="2 states, 1 temperatures, 2 rows of ids"):
        score_states(head, torch.ones(2, 2), torch.ones(1), torch.zeros(2, 1, dtype=torch.int64))
