"""Logits whose vocabulary processes share give what whole logits give, in float64, gradient included."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from afterwit.chat_format.render import Renderer
from afterwit.engines.teacher import given_ids
from afterwit.learning.policy import FrozenModels
from afterwit.learning.update import accumulate, update_state
from afterwit.objective import terms
from plugins.hosts.tests.slime.lessons import OBJECTIVES, PLAIN, made
from plugins.hosts.tests.slime.sharded import TAU, a_row, gradients, joined, read
from tests.fakes.models import reweighted
from tests.learning.test_served_teacher import FromLogits, batch
from tests.learning.updates import furthest, policy_of
from tests.several import several

TOGETHER = [pytest.param(ranks, marks=pytest.mark.cluster) for ranks in (2, 3)]


def outcomes_of(
    processes: ForkServerContext, ranks: int, work: Callable[..., object], *arguments: object
) -> list[Any]:
    """The results of `work(ranks, *arguments)` in each of `ranks` processes; a single one is this process."""
    if ranks > 1:
        outcomes = several(processes, ranks, joined, partial(work, ranks, *arguments))
        assert not any(isinstance(outcome, Exception) for outcome in outcomes), outcomes
        return outcomes
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return [work(1, *arguments)]
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [1, *TOGETHER])
def test_log_probs_gradient_and_top_k_are_those_of_whole_logits(
    processes: ForkServerContext, ranks: int
) -> None:
    for outcome in outcomes_of(processes, ranks, read):
        for seed, (at_TJ, ids_TJ, gradient_TV) in enumerate(outcome):
            logits_TV = a_row(seed).requires_grad_()
            expected_TJ = terms.top_k(logits_TV.detach(), 9)
            now_TJ = terms.at(terms.logprobs(logits_TV, TAU), expected_TJ)
            (now_TJ[:, :4] ** 2).sum().backward()
            assert torch.equal(ids_TJ, expected_TJ)
            assert torch.allclose(at_TJ, now_TJ, rtol=0, atol=1e-13)
            assert torch.allclose(gradient_TV, logits_TV.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("ranks", [1, *TOGETHER[:1]])
def test_the_loss_of_a_batch_is_the_learners(
    exact: Path, tmp_path: Path, renderer: Renderer, processes: ForkServerContext, name: str, ranks: int
) -> None:
    objective, student = OBJECTIVES[name], reweighted(tmp_path / "student", exact, seed=3)
    items = batch(renderer, objective)
    lessons = made(items, objective, FromLogits(student, given_ids(objective)), exact)
    policy = policy_of(student, PLAIN)
    server = FromLogits(exact, objective.ids_kept)
    state = update_state(policy, FrozenModels(exact, PLAIN, server=server), items, objective, PLAIN)
    loss = sum(accumulate(state, part)["loss"] for part in state.passes)
    expected = {name: own.grad for name, own in policy.masters.named.items() if own.grad is not None}
    for found, theirs in outcomes_of(processes, ranks, gradients, student, lessons):
        assert theirs == pytest.approx(loss, abs=1e-12)
        assert furthest(found, expected) < 1e-12
